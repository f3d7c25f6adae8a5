"""KV memory: what is resident, what is reserved, what admission believes."""

from __future__ import annotations

from kvscope.signals.batches import mean_and_error, ratio_and_error
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

_FITS = 0.99
"""What admission counts where it admits all the same."""


@signal("kv_resident_bytes", unit="B", needs=("kv.resident_bytes",), help="Bytes holding live KV, time average.")
def kv_resident_bytes(window: Window) -> Reading | Missing:
    return window.mean("kv.resident_bytes", "B")


@signal("kv_reserved_bytes", unit="B", needs=("kv.reserved_bytes",), help="Bytes the pool holds from the device.")
def kv_reserved_bytes(window: Window) -> Reading | Missing:
    return window.setting_reading("kv.reserved_bytes", "B")


@signal(
    "kv_assumed_bytes", unit="B", needs=("kv.assumed_bytes",), help="KV bytes admission counts for running requests."
)
def kv_assumed_bytes(window: Window) -> Reading | Missing:
    return window.mean("kv.assumed_bytes", "B")


@signal("kv_usage_ratio", unit="ratio", needs=("kv.usage_ratio",), help="Share of the pool that live requests hold.")
def kv_usage_ratio(window: Window) -> Reading | Missing:
    return window.mean("kv.usage_ratio", "ratio")


@signal(
    "kv_bytes_per_token",
    unit="B",
    needs=("kv.bytes_per_token_measured", "kv.resident_bytes", "kv.used_tokens"),
    help="Resident KV bytes of one held token, overhead included.",
)
def kv_bytes_per_token(window: Window) -> Reading | Missing:
    reported = window.mean("kv.bytes_per_token_measured", "B")
    return reported if isinstance(reported, Reading) else over(window, "kv.resident_bytes", "kv.used_tokens", "B")


@signal(
    "memory_estimate_coefficient",
    unit="x",
    needs=("kv.bytes_per_token_assumed", "kv.bytes_per_token_measured"),
    help="KV bytes of a token as admission counts it / as measured; 1 is right, above 1 over-reserves.",
)
def memory_estimate_coefficient(window: Window) -> Reading | Missing:
    assumed = window.setting("kv.bytes_per_token_assumed")
    if isinstance(assumed, Missing):
        return assumed
    measured = kv_bytes_per_token(window)
    if isinstance(measured, Missing):
        return measured
    if measured.value <= 0:
        return Missing("no token is held in this segment", "send the engine some work")
    value = assumed / measured.value
    error = value * measured.error / measured.value
    return Reading(value, error, "x", measured.source, measured.batches, measured.samples)


@signal(
    "kv_assumed_share",
    unit="ratio",
    needs=("kv.assumed_bytes", "kv.reserved_bytes"),
    help="KV bytes admission counts as taken / bytes of the pool: at 1 memory accounting is what stops admission.",
)
def kv_assumed_share(window: Window) -> Reading | Missing:
    return _of_pool(window, "kv.assumed_bytes")


@signal(
    "kv_assumed_next_share",
    unit="ratio",
    needs=("kv.assumed_bytes", "kv.reserved_bytes", "sched.running", "kv.usage_ratio", "sched.kv_bound_steps"),
    help="What admission would count as taken with one more average request / the pool: above 1 it does not fit.",
)
def kv_assumed_next_share(window: Window) -> Reading | Missing:
    books, note = _of_pool(window, "kv.assumed_bytes"), ""
    if isinstance(books, Missing):
        reason = books
        books, note = kv_usage_ratio(window), "inferred: no admission books are reported, from the blocks in use"
        if isinstance(books, Missing):
            return reason
    running = window.mean("sched.running", "requests")
    if isinstance(running, Missing):
        return running
    if running.value <= 0:
        return Missing("nothing was running in this segment", "send the engine some work")
    grown = 1 + 1 / max(1.0, running.value)
    if window.increase_of("sched.kv_bound_steps") == 0.0 and books.value * grown >= 1.0:
        note = "measured: no step waited for blocks, so cached prefixes give way"
        return Reading(_FITS, 0.0, "ratio", note, books.batches, books.samples)
    return Reading(
        books.value * grown, books.error * grown, "ratio", note or books.source, books.batches, books.samples
    )


@signal(
    "kv_resident_share",
    unit="ratio",
    needs=("kv.resident_bytes", "kv.reserved_bytes"),
    help="Bytes holding live KV / bytes of the pool: how full the pool really is.",
)
def kv_resident_share(window: Window) -> Reading | Missing:
    return _of_pool(window, "kv.resident_bytes")


@signal(
    "kv_overhead_share",
    unit="ratio",
    needs=("kv.overhead_bytes", "kv.resident_bytes"),
    help="Share of the resident bytes that is scales, representatives and tables.",
)
def kv_overhead_share(window: Window) -> Reading | Missing:
    return over(window, "kv.overhead_bytes", "kv.resident_bytes", "ratio")


@signal(
    "kv_entries_per_token",
    unit="x",
    needs=("kv.entries", "kv.used_tokens"),
    help="KV entries stored / tokens held: below 1 where a policy evicts.",
)
def kv_entries_per_token(window: Window) -> Reading | Missing:
    return over(window, "kv.entries", "kv.used_tokens", "x")


def _of_pool(window: Window, metric: str) -> Reading | Missing:
    pool = window.setting("kv.reserved_bytes")
    if isinstance(pool, Missing):
        return pool
    held = window.gauge(metric)
    if isinstance(held, Missing):
        return held
    if pool <= 0:
        return Missing("the pool is reported as 0 bytes", "a source that reports kv.reserved_bytes")
    value, error = mean_and_error([mean / pool for mean in held.means])
    return Reading(value, error, "ratio", "measured" + held.note, len(held.means), held.samples)


def over(window: Window, top: str, bottom: str, unit: str) -> Reading | Missing:
    """Return mean(top) / mean(bottom) of two gauges, batch by batch."""
    tops, bottoms = window.gauge(top), window.gauge(bottom)
    if isinstance(tops, Missing):
        return tops
    if isinstance(bottoms, Missing):
        return bottoms
    if len(tops.means) != len(bottoms.means):
        return Missing(f"{top} and {bottom} were not sampled together", "one source that reports both")
    if sum(bottoms.means) <= 0:
        return Missing(f"{bottom} stayed 0 in this segment", "send the engine some work")
    value, error = ratio_and_error(tops.means, bottoms.means)
    return Reading(value, error, unit, "measured" + tops.note, len(tops.means), tops.samples)
