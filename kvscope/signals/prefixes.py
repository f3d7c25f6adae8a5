"""Prefixes: what comes back, what of it is found, what the cache would have to hold; and dips of the
hit rate: lookups that suddenly find nothing of what is found before and after, and what was then short.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

from kvscope.signals.algebra import Clip, amount, rate, setting, share
from kvscope.signals.batches import BATCHES
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, UP, declare, procedure
from kvscope.signals.samples import WATCH_LONGER, Samples

BEFORE_S = 15.0
"""How long before a dip something may have pushed prefixes out."""
SLICE_S = 1.0
_FEWEST, _USUAL, _RARE = 8, 0.30, 0.30
_COUNTERS = ("prefix.queries", "prefix.hits", "prefix.reusable")
_PRESSED = ("kv.pool_usage_ratio", "kv.usage_ratio")


@dataclass(frozen=True, slots=True)
class Dip:
    """From ``start_s`` to ``end_s`` prompts came back and ``lost`` tokens of them, usually found, were not."""

    start_s: float
    end_s: float
    lost: float


def dips(samples: Samples) -> list[Dip] | Missing:
    """Return the dips that healed, oldest first; none where hits are never usual or missing them is no exception."""
    counters = [samples.counter(name) for name in _COUNTERS]
    for counter in counters:
        if isinstance(counter, Missing):
            return counter
    queries, hits, reusable = (counter for counter in counters if not isinstance(counter, Missing))
    cuts = _cuts({t for part in queries.parts for t in part.times})
    columns = (queries.grown(cuts), hits.grown(cuts), reusable.grown(cuts))
    rows = [row for row in zip(pairwise(cuts), *columns, strict=True) if row[1] > 0]
    if len(rows) < _FEWEST:
        return Missing(f"prompts were looked up in only {len(rows)} samples, too few to see a dip", WATCH_LONGER)
    usual = median(found / asked for _, asked, found, _ in rows)
    low = [usual >= _USUAL and found < usual / 2 * asked and back >= asked / 2 for _, asked, found, back in rows]
    runs = [(dip, [row for _, row in run]) for dip, run in groupby(zip(low, rows, strict=True), key=lambda one: one[0])]
    healed = [run for dip, run in runs[1:-1] if dip]
    if sum(map(len, healed)) > _RARE * len(rows):
        return []
    return [Dip(run[0][0][0], run[-1][0][1], sum(usual * row[1] - row[2] for row in run)) for run in healed]


def _cuts(times: set[float]) -> list[float]:
    """Sample times so far apart that a slice is no single request of an engine that is read every step."""
    found: list[float] = []
    for t in sorted(times):
        if not found or t - found[-1] >= SLICE_S:
            found.append(t)
    return found


def _peak(samples: Samples, metric: str, start_s: float, end_s: float) -> float | None:
    """The largest sample of any of a gauge's label sets between two times."""
    slices = samples.slices(metric).values()
    inside = (v for times, values in slices for t, v in zip(times, values, strict=True) if start_s <= t <= end_s)
    return max(inside, default=None)


@procedure(
    "prefix_dips",
    unit="dips",
    reads=_COUNTERS,
    better=DOWN,
    help="Times the hit rate fell below half and healed by itself.",
)
def prefix_dips(samples: Samples) -> Reading | Missing:
    found = dips(samples)
    if isinstance(found, Missing):
        return found
    seconds = samples.segment.end_s - samples.segment.start_s
    return Reading(float(len(found)), 0.0, "dips", f"counted in {seconds:.0f} s", 1, len(found), "count", seconds)


@procedure(
    "prefix_dip_share",
    unit="ratio",
    reads=_COUNTERS,
    help="Prompt tokens usually found and lost in dips / prompt tokens that were not found: computed for nothing.",
)
def prefix_dip_share(samples: Samples) -> Reading | Missing:
    found = dips(samples)
    if isinstance(found, Missing):
        return found
    missed = samples.flow(amount("prefix.queries", less=("prefix.hits",)))
    if isinstance(missed, Missing) or samples.whole(missed) <= 0:
        return Missing("every prompt token that was looked up was found", WATCH_LONGER)
    share = min(1.0, sum(dip.lost for dip in found) / samples.whole(missed))
    return Reading(share, 0.0, "ratio", f"measured: {len(found)} dips", BATCHES, missed.samples)


@procedure(
    "prefix_dip_pool_usage",
    unit="ratio",
    reads=(*_COUNTERS, *_PRESSED),
    help="Use of the fullest pool at its highest in a dip and the 15 s before, mean over dips.",
)
def prefix_dip_pool_usage(samples: Samples) -> Reading | Missing:
    found = dips(samples)
    if isinstance(found, Missing):
        return found
    metric = next((name for name in _PRESSED if samples.slices(name)), "")
    if not metric:
        return samples.absent("kv.usage_ratio")
    peaks = [_peak(samples, metric, dip.start_s - BEFORE_S, dip.end_s) for dip in found]
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return Missing("the hit rate has no dip in this segment", WATCH_LONGER)
    spread = (max(known) - min(known)) / 2
    return Reading(sum(known) / len(known), spread, "ratio", f"measured: {metric}", len(known), len(known))


@procedure(
    "prefix_dip_prefill_ratio",
    unit="x",
    reads=(*_COUNTERS, "tokens.prefilled"),
    help="Tokens prefilled a second in dips and the 15 s before, what the dip lost left out / outside of them.",
)
def prefix_dip_prefill_ratio(samples: Samples) -> Reading | Missing:
    found, counter = dips(samples), samples.counter("tokens.prefilled")
    if isinstance(found, Missing):
        return found
    if isinstance(counter, Missing):
        return counter
    if not found:
        return Missing("the hit rate has no dip in this segment", WATCH_LONGER)
    near = _joined([(max(counter.start_s, dip.start_s - BEFORE_S), min(counter.end_s, dip.end_s)) for dip in found])
    inside = sum(counter.grown(span)[0] for span in near) - sum(dip.lost for dip in found)
    seconds = sum(end - start for start, end in near)
    rest, rest_s = counter.grown((counter.start_s, counter.end_s))[0], counter.end_s - counter.start_s
    outside, outside_s = rest - sum(counter.grown(span)[0] for span in near), rest_s - seconds
    if outside <= 0 or outside_s <= 0 or seconds <= 0:
        return Missing("no prompt was computed away from the dips", WATCH_LONGER)
    ratio = max(0.0, inside / seconds) / (outside / outside_s)
    return Reading(ratio, 0.0, "x", samples.source(counter), 1, counter.samples)


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join spans that overlap, so that nothing counts twice."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


_NO_LOOKUP = "no prompt token was looked up in this segment"

declare(
    "prefix_hit_rate",
    share("prefix.hits", "prefix.queries", _NO_LOOKUP),
    UP,
    "Prompt tokens found in the prefix cache / looked up.",
    label="prefix hits",
)
declare(
    "prefix_reusable_share",
    share("prefix.reusable", "prefix.queries", _NO_LOOKUP),
    NEITHER,
    "Prompt tokens looked up that had been computed before / looked up: what a cache that holds all would find.",
)
declare(
    "prefix_lost_share",
    Clip(share(amount("prefix.reusable", less=("prefix.hits",)), "prefix.queries", _NO_LOOKUP), 0.0),
    DOWN,
    "Prompt tokens that had been computed before and were not found any more / looked up.",
)
declare(
    "prefix_restored_share",
    share("prefix.hits", "prefix.matched", "no prompt matched a cached prefix in this segment"),
    UP,
    "Prompt tokens taken from the prefix cache / tokens that a cached prefix shares: below 1 some are lost.",
)
declare(
    "prefix_unrestored_share",
    share(
        amount("prefix.matched", less=("prefix.hits",)),
        amount("prefix.queries", less=("prefix.hits",)),
        "every prompt token looked up was found in this segment",
    ),
    DOWN,
    "Prompt tokens computed although a cached prefix shares them / all prompt tokens computed.",
)
declare(
    "prefix_full_recomputes_per_s",
    rate("prefix.full_recomputes"),
    DOWN,
    "Requests computed from their first token although a prefix of theirs is cached, per second.",
)
declare(
    "prefix_queries_per_s", rate("prefix.queries"), NEITHER, "Prompt tokens looked up in the prefix cache per second."
)
declare(
    "working_set_over_pool",
    setting("prefix.working_set_tokens") / setting("kv.capacity_tokens"),
    DOWN,
    "Distinct prompt tokens that come back / tokens the pool can hold: above 1 some are evicted before their use.",
    unit="x",
)
