"""How long blocks live, and how full the pool is when cached prefixes count too."""

from __future__ import annotations

from collections.abc import Callable

from kvscope.signals.batches import ratio_and_error
from kvscope.signals.latency import mean_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

_TIMES = {
    "block_lifetime_mean_s": ("block.lifetime", "Allocation to eviction of a block, mean over evicted blocks."),
    "block_idle_mean_s": ("block.idle", "Last use to eviction of a block, mean over evicted blocks."),
    "block_reuse_gap_mean_s": ("block.reuse_gap", "Gap between two uses of a block, mean."),
}
_POOL = ("kv.used_tokens", "kv.evictable_tokens", "kv.free_tokens")


def _mean(metric: str) -> Callable[[Window], Reading | Missing]:
    return lambda window: mean_of(window, metric, "s")


for _name, (_metric, _help) in _TIMES.items():
    signal(_name, unit="s", needs=(_metric,), help=_help)(_mean(_metric))


@signal(
    "kv_occupied_share",
    unit="ratio",
    needs=_POOL,
    help="Share of the pool that holds anything, cached prefixes nobody uses included: not pressure by itself.",
)
def kv_occupied_share(window: Window) -> Reading | Missing:
    rows = window.together(*_POOL)
    if isinstance(rows, Missing):
        return rows
    tops, bottoms = [row[0] + row[1] for row in rows], [sum(row) for row in rows]
    if sum(bottoms) <= 0:
        return Missing("the pool is reported as 0 tokens", "a source that reports kv.free_tokens")
    value, error = ratio_and_error(tops, bottoms)
    return Reading(value, error, "ratio", "measured", len(rows), len(rows))


@signal(
    "evicted_tokens_per_s", unit="1/s", needs=("cache.evicted_tokens",), help="Cached prompt tokens dropped per second."
)
def evicted_tokens_per_s(window: Window) -> Reading | Missing:
    return window.rate("cache.evicted_tokens", "1/s")
