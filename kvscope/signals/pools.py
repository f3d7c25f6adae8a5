"""Pools: blocks that are only partly filled, pools beside the main one, and memory that nobody uses."""

from __future__ import annotations

from collections.abc import Callable

from kvscope.signals.batches import mean_and_error
from kvscope.signals.raw import absent
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal(
    "block_waste_share",
    unit="ratio",
    needs=(
        "kv.used_tokens",
        "kv.used_blocks",
        "kv.block_size",
        "sched.running",
        "kv.usage_ratio",
        "kv.capacity_tokens",
    ),
    help="Share of the blocks in use that holds no token: the empty ends (half a block a request, where not told).",
)
def block_waste_share(window: Window) -> Reading | Missing:
    size = window.setting("kv.block_size")
    if isinstance(size, Missing):
        return size
    rows = window.together("kv.used_tokens", "kv.used_blocks")
    if isinstance(rows, Missing):
        return rows
    held = [1 - tokens / (blocks * size) for tokens, blocks in rows if blocks > 0 and size > 0]
    if len(held) < 3:
        return Missing("no block is in use in this segment", "send the engine some work")
    value, error = mean_and_error(held)
    return Reading(max(0.0, value), error, "ratio", "measured", len(held), len(held))


@signal(
    "block_waste_estimate",
    unit="ratio",
    needs=(
        "kv.used_tokens",
        "kv.used_blocks",
        "kv.block_size",
        "sched.running",
        "kv.usage_ratio",
        "kv.capacity_tokens",
    ),
    help="As block_waste_share; where tokens are not told, half a block for each running request.",
)
def block_waste_estimate(window: Window) -> Reading | Missing:
    told, size = block_waste_share(window), window.setting("kv.block_size")
    if isinstance(told, Reading):
        return told
    if isinstance(size, Missing):
        return size
    capacity = window.setting("kv.capacity_tokens")
    if isinstance(capacity, Missing):
        return capacity
    rows = window.together("sched.running", "kv.usage_ratio")
    if isinstance(rows, Missing):
        return rows
    held = [min(1.0, running * size / 2 / (usage * capacity)) for running, usage in rows if usage * capacity > 0]
    if len(held) < 3:
        return Missing("no block is in use in this segment", "send the engine some work")
    value, error = mean_and_error(held)
    return Reading(value, error, "ratio", "inferred: half a block a running request", len(held), len(held))


def _pool_usage(window: Window, pick: Callable[[list[Reading]], Reading]) -> Reading | Missing:
    found: list[Reading] = []
    for labels in window.store.keys("kv.pool_usage_ratio"):
        times, values = window.store.series("kv.pool_usage_ratio", labels, window.segment.start_s, window.segment.end_s)
        if len(times) >= 3:
            value, error = mean_and_error(values)
            name = dict(labels).get("pool", "")
            found.append(Reading(value, error, "ratio", f"measured: pool {name}", len(times), len(times)))
    return pick(found) if found else absent("kv.pool_usage_ratio", window.store)


@signal(
    "pool_usage_highest",
    unit="ratio",
    needs=("kv.pool_usage_ratio",),
    help="Use of the fullest of a hybrid model's pools.",
)
def pool_usage_highest(window: Window) -> Reading | Missing:
    return _pool_usage(window, lambda found: max(found, key=lambda one: one.value))


@signal(
    "pool_usage_lowest",
    unit="ratio",
    needs=("kv.pool_usage_ratio",),
    help="Use of the emptiest of a hybrid model's pools.",
)
def pool_usage_lowest(window: Window) -> Reading | Missing:
    return _pool_usage(window, lambda found: min(found, key=lambda one: one.value))


@signal(
    "kv_retained_bytes",
    unit="B",
    needs=("kv.retained_bytes",),
    help="KV bytes held after their requests ended, reusable by nobody.",
)
def kv_retained_bytes(window: Window) -> Reading | Missing:
    return window.mean("kv.retained_bytes", "B")


@signal("kv_peak_over_live", unit="x", needs=("kv.peak_over_live",), help="Peak of KV memory / KV that requests hold.")
def kv_peak_over_live(window: Window) -> Reading | Missing:
    return window.mean("kv.peak_over_live", "x")
