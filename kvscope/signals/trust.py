"""Whether the numbers can be believed: gauges that stand still, counters that jump, metrics that vanished, restarts."""

from __future__ import annotations

from itertools import pairwise

from kvscope.signals.batches import BATCHES
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, procedure
from kvscope.signals.samples import WATCH_LONGER, Samples

_FEWEST = 20
"""Samples below which a still gauge or a single jump is chance."""
_FULL = 0.98
_FINER = ("kv.used_tokens", "kv.resident_bytes")
"""Gauges of KV that move with single tokens."""
PROMISED = {
    "vllm": ("kv.usage_ratio", "sched.running", "sched.waiting", "tokens.generated"),
    "sglang": ("kv.usage_ratio", "sched.running", "sched.waiting", "tokens.generated"),
}
"""Engine → metrics that every page of it carries, under whichever of their names."""


@procedure(
    "gauge_frozen_share",
    unit="ratio",
    better=DOWN,
    reads=("kv.usage_ratio", "tokens.generated", "sched.running"),
    help="Longest stretch in which requests came or went and no gauge of KV moved at all / samples with new tokens.",
)
def gauge_frozen_share(samples: Samples) -> Reading | Missing:
    # Whole pages may be taken and given back unseen; where a finer gauge moves, the gauges are refreshed.
    finer = next((name for name in _FINER if samples.slices(name)), "kv.usage_ratio")
    rows = samples.together("kv.usage_ratio", "tokens.generated", "sched.running", finer)
    if isinstance(rows, Missing):
        return rows
    moving = [(before, after) for before, after in pairwise(rows) if after[2] > before[2] and after[3] > 0]
    if len(moving) < _FEWEST:
        return Missing(f"tokens came in only {len(moving)} samples, too few to call a gauge frozen", WATCH_LONGER)
    # Equal requests that replace each other at once hold equal blocks: only a changing number of them must show.
    longest = run = 0
    counts: set[float] = set()
    for before, after in moving:
        # A pool that is full stands still because it is full.
        still = before[1] == after[1] < _FULL and before[4] == after[4]
        run, counts = (run + 1, counts | {after[3]}) if still else (0, set())
        longest = max(longest, run if len(counts) > 1 else 0)
    return Reading(longest / len(moving), 1 / len(moving), "ratio", "measured: samples", BATCHES, len(moving))


@procedure(
    "counter_jump_share",
    unit="ratio",
    better=DOWN,
    reads=("tier.bytes_in", "sparse.entries_read", "tier.hot_accesses", "tokens.generated"),
    help="Largest single step of the sparse counters (or the tier's) / their growth, while tokens came all along.",
)
def counter_jump_share(samples: Samples) -> Reading | Missing:
    # Moves between tiers come in bursts by nature; where reads are counted every step, the page is not sampled.
    reason: Missing | None = None
    for metric in ("sparse.entries_read", "tier.hot_accesses", "tier.bytes_in"):
        found = _jump(samples, metric)
        if isinstance(found, Reading):
            return found
        reason = reason or found
    return reason or Missing("nothing was counted", WATCH_LONGER)


def _jump(samples: Samples, metric: str) -> Reading | Missing:
    rows = samples.together(metric, "tokens.generated")
    if isinstance(rows, Missing):
        return rows
    steps = [(after[1] - before[1], after[2] - before[2]) for before, after in pairwise(rows)]
    busy = [step for step, tokens in steps if tokens > 0 and step >= 0]
    if len(busy) < _FEWEST or sum(busy) <= 0:
        return Missing(f"{metric}: too little was counted to tell how it grows", WATCH_LONGER)
    return Reading(max(busy) / sum(busy), 1 / len(busy), "ratio", f"measured: {metric}", BATCHES, len(busy))


_BORROWS = {"dynamo"}
"""Servers whose workers write some of an engine's names and never promised the others."""


@procedure(
    "promised_metrics_absent",
    unit="metrics",
    better=DOWN,
    reads=("engine.info", "kv.usage_ratio", "sched.running", "sched.waiting", "tokens.generated"),
    help="Metrics that every page of this engine carries and this one does not, under no known name.",
)
def promised_metrics_absent(samples: Samples) -> Reading | Missing:
    told = [dict(labels) for labels in samples.store.keys("engine.info")]
    engines = {one.get("engine", "") for one in told if not _BORROWS & set(one.get("beside", "").split(", "))}
    known = [engine for engine in sorted(engines) if engine in PROMISED]
    if not known:
        return Missing("no engine whose page is known by heart", "a vLLM or SGLang page")
    if not any(samples.slices(metric) for engine in known for metric in PROMISED[engine]):
        return Missing("the page carries none of the engine's metrics", "the engine's own address")
    absent = sorted({metric for engine in known for metric in PROMISED[engine] if not samples.slices(metric)})
    return Reading(float(len(absent)), 0.0, "metrics", f"measured: absent: {', '.join(absent) or 'none'}", 1, 1, "fact")


@procedure(
    "engine_restarts",
    unit="restarts",
    better=DOWN,
    reads=("tokens.generated",),
    help="Times the token counter fell back, that is, the engine started anew within this segment.",
)
def engine_restarts(samples: Samples) -> Reading | Missing:
    counter = samples.counter("tokens.generated")
    if isinstance(counter, Missing):
        return counter
    return Reading(float(counter.resets), 0.0, "restarts", samples.source(counter), 1, counter.samples, "count")
