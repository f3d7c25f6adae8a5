"""The ranks of one engine against each other: how evenly they read, how long they wait, whether sharding pays."""

from __future__ import annotations

import math

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

_ONE = Missing("one rank only", "a run over several ranks")


def ranks(window: Window, metric: str) -> list[str]:
    """Return the ranks that told ``metric``, in their order."""
    found = {dict(labels).get("rank", "") for labels in window.store.keys(metric)}
    return sorted(found, key=lambda rank: (len(rank), rank))


def _fullest(window: Window, metric: str) -> Reading | Missing:
    names = ranks(window, metric)
    if len(names) < 2:
        missing = window.counter(metric)
        return missing if isinstance(missing, Missing) else _ONE
    grown = [window.increase_of(metric, rank=rank) for rank in names]
    known = [value for value in grown if not isinstance(value, Missing)]
    silent = Missing("not every rank counted in this segment", "send the engine some work")
    return _over_mean(known, len(names), silent)


def _over_mean(known: list[float], ranks: int, silent: Missing) -> Reading | Missing:
    """Return the largest over the mean; ``silent`` when not every rank is known, or all have nothing."""
    if len(known) < ranks or sum(known) <= 0:
        return silent
    return Reading(max(known) * ranks / sum(known), 0.0, "x", f"measured: {ranks} ranks", 1, ranks)


@signal(
    "rank_read_ratio",
    unit="x",
    needs=("rank.entries_read",),
    help="KV entries that the busiest rank read / the mean of the ranks.",
)
def rank_read_ratio(window: Window) -> Reading | Missing:
    return _fullest(window, "rank.entries_read")


@signal(
    "rank_kv_ratio",
    unit="x",
    needs=("rank.kv_bytes",),
    help="KV bytes of the fullest rank / the mean of the ranks.",
)
def rank_kv_ratio(window: Window) -> Reading | Missing:
    names = ranks(window, "rank.kv_bytes")
    if len(names) < 2:
        missing = window.gauge("rank.kv_bytes")
        return missing if isinstance(missing, Missing) else _ONE
    end = window.segment.end_s
    held = [window.store.latest("rank.kv_bytes", labels, end) for labels in window.store.keys("rank.kv_bytes")]
    known = [value for value in held if value is not None]
    return _over_mean(known, len(names), Missing("not every rank told its bytes in this segment", "watch for longer"))


def _of_decode(window: Window, metric: str) -> Reading | Missing:
    return window.ratio(window.counter(metric), window.counter("time.decode"), "ratio", "nothing was decoded")


@signal(
    "rank_exchange_share",
    unit="ratio",
    needs=("rank.exchange_time", "time.decode"),
    help="Time in exchanges between ranks, waiting included / decode time, mean over ranks.",
)
def rank_exchange_share(window: Window) -> Reading | Missing:
    return _of_decode(window, "rank.exchange_time")


@signal(
    "rank_wait_share",
    unit="ratio",
    needs=("rank.wait_time", "time.decode"),
    help="Time spent waiting for a later rank / decode time, mean over ranks.",
)
def rank_wait_share(window: Window) -> Reading | Missing:
    return _of_decode(window, "rank.wait_time")


@signal(
    "rank_wait_of_exchange",
    unit="ratio",
    needs=("rank.wait_time", "rank.exchange_time"),
    help="The part of the time in exchanges that is waiting for a later rank, not sending.",
)
def rank_wait_of_exchange(window: Window) -> Reading | Missing:
    wait, exchange = window.counter("rank.wait_time"), window.counter("rank.exchange_time")
    return window.ratio(wait, exchange, "ratio", "nothing was exchanged in this segment")


@signal(
    "rank_bytes_sent_per_step",
    unit="B/step",
    needs=("rank.bytes_sent", "batch.decode_steps"),
    help="Bytes a rank sends in a decode step, mean over ranks.",
)
def rank_bytes_sent_per_step(window: Window) -> Reading | Missing:
    sent, steps = window.counter("rank.bytes_sent"), window.counter("batch.decode_steps")
    return window.ratio(sent, steps, "B/step", "nothing was decoded in this segment")


@signal(
    "shard_speedup",
    unit="x",
    needs=("rank.attend_time", "rank.exchange_time", "time.decode"),
    help="Decode on one rank, as the sum of what all ranks choose and read, / decode as it is. Below 1 sharding loses.",
)
def shard_speedup(window: Window) -> Reading | Missing:
    """Inferred: one rank would choose and attend for the sum of the ranks, exchange nothing, and do the rest alike."""
    count = len(ranks(window, "rank.attend_time"))
    if count == 1:
        return _ONE
    shares = [_of_decode(window, name) for name in ("rank.attend_time", "sparse.index_time", "rank.exchange_time")]
    for share in shares:
        if isinstance(share, Missing):
            return share
    attend, index, exchange = (share for share in shares if isinstance(share, Reading))
    value = 1 + (count - 1) * (attend.value + index.value) - exchange.value
    error = math.hypot((count - 1) * attend.error, (count - 1) * index.error, exchange.error)
    source = f"inferred: {count} ranks, attention {attend.value:.0%} and exchanges {exchange.value:.0%} of decode"
    return Reading(value, error, "x", source, attend.batches, attend.samples)
