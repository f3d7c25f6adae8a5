"""Prefixes: what comes back, what of it is found, and what the cache would have to hold."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.sparse import prefix_hit_rate
from kvscope.signals.window import Window

_NO_LOOKUP = "no prompt token was looked up in this segment"


@signal(
    "prefix_reusable_share",
    unit="ratio",
    needs=("prefix.reusable", "prefix.queries"),
    help="Prompt tokens looked up that had been computed before / looked up: what a cache that holds all would find.",
)
def prefix_reusable_share(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("prefix.reusable"), window.counter("prefix.queries"), "ratio", _NO_LOOKUP)


@signal(
    "prefix_lost_share",
    unit="ratio",
    needs=("prefix.reusable", "prefix.hits", "prefix.queries"),
    help="Prompt tokens that had been computed before and were not found any more / looked up.",
)
def prefix_lost_share(window: Window) -> Reading | Missing:
    back, found = prefix_reusable_share(window), prefix_hit_rate(window)
    if isinstance(back, Missing):
        return back
    if isinstance(found, Missing):
        return found
    error = (back.error**2 + found.error**2) ** 0.5
    return Reading(max(0.0, back.value - found.value), error, "ratio", back.source, back.batches, back.samples)


@signal(
    "prefix_full_recomputes_per_s",
    unit="1/s",
    needs=("prefix.full_recomputes",),
    help="Requests computed from their first token although a prefix of theirs is cached, per second.",
)
def prefix_full_recomputes_per_s(window: Window) -> Reading | Missing:
    return window.rate("prefix.full_recomputes", "1/s")


@signal(
    "prefix_queries_per_s",
    unit="1/s",
    needs=("prefix.queries",),
    help="Prompt tokens looked up in the prefix cache per second.",
)
def prefix_queries_per_s(window: Window) -> Reading | Missing:
    return window.rate("prefix.queries", "1/s")


@signal(
    "working_set_over_pool",
    unit="x",
    needs=("prefix.working_set_tokens", "kv.capacity_tokens"),
    help="Distinct prompt tokens that come back / tokens the pool can hold: above 1 some are evicted before their use.",
)
def working_set_over_pool(window: Window) -> Reading | Missing:
    wanted, pool = window.setting("prefix.working_set_tokens"), window.setting("kv.capacity_tokens")
    if isinstance(wanted, Missing):
        return wanted
    if isinstance(pool, Missing):
        return pool
    if pool <= 0:
        return Missing("the pool is reported as 0 tokens", "a source that reports kv.capacity_tokens")
    return Reading(wanted / pool, 0.0, "x", "measured: as reported", 1, 1)


@signal(
    "kv_capacity_tokens", unit="tokens", needs=("kv.capacity_tokens",), help="Tokens the pool can hold, as configured."
)
def kv_capacity_tokens(window: Window) -> Reading | Missing:
    return window.setting_reading("kv.capacity_tokens", "tokens")
