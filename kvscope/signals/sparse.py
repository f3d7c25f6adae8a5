"""Sparsity: how much of the KV decode really reads, against what it was asked to read."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Counter, Window

_READS = ("sparse.entries_read", "sparse.entries_total")
_NO_READS = "decode read no KV entries in this segment"


@signal(
    "sparse_hit_rate",
    unit="ratio",
    needs=_READS,
    help="KV entries decode read / entries it would have read without a policy.",
)
def sparse_hit_rate(window: Window) -> Reading | Missing:
    return window.ratio(window.counter(_READS[0]), window.counter(_READS[1]), "ratio", _NO_READS)


@signal(
    "kept_share_target",
    unit="ratio",
    needs=("sparse.kept_share_target",),
    help="Share of the entries a decode step is asked to read.",
)
def kept_share_target(window: Window) -> Reading | Missing:
    return window.setting_reading("sparse.kept_share_target", "ratio")


@signal(
    "hit_rate_over_target",
    unit="x",
    needs=(*_READS, "sparse.kept_share_target"),
    help="Sparse hit rate / kept share asked for: far above 1 the policy is not doing its work.",
)
def hit_rate_over_target(window: Window) -> Reading | Missing:
    target = window.setting("sparse.kept_share_target")
    if isinstance(target, Missing):
        return target
    if target <= 0:
        return Missing("the kept share asked for is 0: no sparse policy is configured", "set a kept share")
    hit = sparse_hit_rate(window)
    if isinstance(hit, Missing):
        return hit
    return Reading(hit.value / target, hit.error / target, "x", hit.source, hit.batches, hit.samples)


@signal(
    "layer_hit_rate_spread",
    unit="ratio",
    needs=("sparse.layer_entries_read", "sparse.layer_entries_total"),
    help="Highest less lowest sparse hit rate of a layer: near 0 all layers behave alike.",
)
def layer_hit_rate_spread(window: Window) -> Reading | Missing:
    rates: list[Reading] = []
    for labels in window.store.keys("sparse.layer_entries_total"):
        layer = dict(labels).get("layer", "")
        read = window.counter("sparse.layer_entries_read", layer=layer)
        total = window.counter("sparse.layer_entries_total", layer=layer)
        rate = window.ratio(read, total, "ratio", _NO_READS)
        if isinstance(rate, Missing):
            return rate
        rates.append(rate)
    if not rates:
        missing = window.counter("sparse.layer_entries_total")
        return missing if isinstance(missing, Missing) else Missing("no layer is named", "per-layer probes")
    high, low = max(rates, key=lambda r: r.value), min(rates, key=lambda r: r.value)
    error = (high.error**2 + low.error**2) ** 0.5
    return Reading(high.value - low.value, error, "ratio", f"measured: {len(rates)} layers", high.batches, high.samples)


@signal(
    "prefix_hit_rate",
    unit="ratio",
    needs=("prefix.hits", "prefix.queries"),
    help="Prompt tokens found in the prefix cache / looked up.",
)
def prefix_hit_rate(window: Window) -> Reading | Missing:
    nothing = "no prompt token was looked up in this segment"
    return window.ratio(window.counter("prefix.hits"), window.counter("prefix.queries"), "ratio", nothing)


@signal(
    "entries_read_per_token",
    unit="entries",
    needs=("sparse.entries_read", "tokens.generated"),
    help="KV entries decode read per output token, mean over layers.",
)
def entries_read_per_token(window: Window) -> Reading | Missing:
    read: Counter | Missing = window.counter("sparse.entries_read")
    return window.ratio(read, window.counter("tokens.generated"), "entries", "no token was generated")


@signal(
    "selection_over_saved",
    unit="x",
    needs=("sparse.index_time", "time.attend", "sparse.entries_read", "sparse.entries_total"),
    help="Time to choose blocks / attention time that reading only those saves: above 1 choosing costs more.",
)
def selection_over_saved(window: Window) -> Reading | Missing:
    read = sparse_hit_rate(window)
    if isinstance(read, Missing):
        return read
    if not 0.0 < read.value < 1.0:
        return Missing("decode reads everything, so nothing is saved", "a policy that selects")
    cost = window.ratio(window.counter("sparse.index_time"), window.counter("time.attend"), "x", "no time of attention")
    if isinstance(cost, Missing):
        return cost
    # Attention takes as long as it reads: what is skipped would have taken in proportion.
    saved = 1 / read.value - 1
    error = ((cost.error / saved) ** 2 + (cost.value * read.error / (read.value * saved) ** 2) ** 2) ** 0.5
    return Reading(
        cost.value / saved, error, "x", "inferred: attention in proportion to reads", cost.batches, cost.samples
    )
