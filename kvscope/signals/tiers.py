"""Tiers: how often decode meets cold KV, and how much moves between tiers."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

_SWITCHES = ("tier.promotions", "tier.demotions")
_BYTES = ("tier.bytes_in", "tier.bytes_out")
_NO_TOKENS = "no token was generated in this segment"


@signal(
    "hot_access_share",
    unit="ratio",
    needs=("tier.hot_accesses", "tier.cold_accesses"),
    help="Block reads of decode served at full precision / all block reads.",
)
def hot_access_share(window: Window) -> Reading | Missing:
    everything = window.total(("tier.hot_accesses", "tier.cold_accesses"))
    return window.ratio(window.counter("tier.hot_accesses"), everything, "ratio", "decode read no block")


@signal(
    "tier_switches_per_token",
    unit="1/token",
    needs=(*_SWITCHES, "tokens.generated"),
    help="Blocks promoted or demoted per output token.",
)
def tier_switches_per_token(window: Window) -> Reading | Missing:
    return window.ratio(window.total(_SWITCHES), window.counter("tokens.generated"), "1/token", _NO_TOKENS)


@signal("tier_bytes_per_s", unit="B/s", needs=_BYTES, help="Bytes moved between tiers per second, both ways.")
def tier_bytes_per_s(window: Window) -> Reading | Missing:
    first, second = (window.rate(metric, "B/s") for metric in _BYTES)
    if isinstance(first, Missing):
        return first
    if isinstance(second, Missing):
        return second
    error = (first.error**2 + second.error**2) ** 0.5
    return Reading(first.value + second.value, error, "B/s", first.source, first.batches, first.samples)


@signal(
    "tier_bytes_per_token",
    unit="B/token",
    needs=(*_BYTES, "tokens.generated"),
    help="Bytes moved between tiers per output token.",
)
def tier_bytes_per_token(window: Window) -> Reading | Missing:
    return window.ratio(window.total(_BYTES), window.counter("tokens.generated"), "B/token", _NO_TOKENS)


@signal(
    "cold_entries_share",
    unit="ratio",
    needs=("kv.cold_entries", "kv.hot_entries"),
    help="Entries held in the cold form / all entries held, over all layers.",
)
def cold_entries_share(window: Window) -> Reading | Missing:
    cold, hot = window.mean("kv.cold_entries", "entries"), window.mean("kv.hot_entries", "entries")
    if isinstance(cold, Missing):
        return cold
    if isinstance(hot, Missing):
        return hot
    total = cold.value + hot.value
    if total <= 0:
        return Missing("no entry is held in this segment", "send the engine some work")
    error = ((cold.error * hot.value) ** 2 + (hot.error * cold.value) ** 2) ** 0.5 / total**2
    return Reading(cold.value / total, error, "ratio", cold.source, cold.batches, cold.samples)


@signal("evictions_per_s", unit="1/s", needs=("cache.evictions",), help="Blocks dropped per second.")
def evictions_per_s(window: Window) -> Reading | Missing:
    return window.rate("cache.evictions", "1/s")
