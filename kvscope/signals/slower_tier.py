"""The tier behind the pool: is it asked, does it answer, how fast, and does it fail."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

_NO_TRANSFER = "nothing was moved in this segment"


@signal(
    "tier_hit_rate",
    unit="ratio",
    needs=("tier.hits", "tier.queries"),
    help="Prompt tokens found in a slower tier / looked up there.",
)
def tier_hit_rate(window: Window) -> Reading | Missing:
    nothing = "no prompt token was looked up in a slower tier (a counter that stays 0 is no measured zero)"
    return window.ratio(window.counter("tier.hits"), window.counter("tier.queries"), "ratio", nothing)


@signal(
    "tier_load_bytes_per_s", unit="B/s", needs=("tier.bytes_in",), help="Bytes moved toward the hot tier per second."
)
def tier_load_bytes_per_s(window: Window) -> Reading | Missing:
    return window.rate("tier.bytes_in", "B/s")


@signal(
    "tier_store_bytes_per_s",
    unit="B/s",
    needs=("tier.bytes_out",),
    help="Bytes moved away from the hot tier per second.",
)
def tier_store_bytes_per_s(window: Window) -> Reading | Missing:
    return window.rate("tier.bytes_out", "B/s")


@signal(
    "tier_loads_per_store",
    unit="x",
    needs=("tier.bytes_in", "tier.bytes_out"),
    help="Bytes loaded from a slower tier / stored in it: near 0 a tier is written and never read.",
)
def tier_loads_per_store(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("tier.bytes_in"), window.counter("tier.bytes_out"), "x", _NO_TRANSFER)


@signal(
    "tier_load_bandwidth",
    unit="B/s",
    needs=("tier.bytes_in", "tier.load_time"),
    help="Bytes loaded from a slower tier / the time the loads took.",
)
def tier_load_bandwidth(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("tier.bytes_in"), window.counter("tier.load_time"), "B/s", _NO_TRANSFER)


@signal(
    "tier_failures_per_s",
    unit="1/s",
    needs=("tier.failures",),
    help="Loads, stores and allocations of a slower tier that failed or were dropped, per second.",
)
def tier_failures_per_s(window: Window) -> Reading | Missing:
    return window.rate("tier.failures", "1/s")


@signal(
    "fetching_requests",
    unit="requests",
    needs=("sched.fetching",),
    help="Waiting requests whose KV is being loaded, time average.",
)
def fetching_requests(window: Window) -> Reading | Missing:
    return window.mean("sched.fetching", "requests")
