"""A segment between every two of its samples: what gauges said at both ends, and by how much counters grew between.

Rates and shares of a whole segment hide what happened when; the account of what limits an engine needs each stretch for
itself. At most ``MOST`` stretches: a long segment is looked at more coarsely, never in part.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice, pairwise
from math import inf, nextafter
from operator import sub
from typing import TypeVar, cast

from kvscope.signals.flows import MIN_SAMPLES, Flow, gaps_of
from kvscope.signals.reading import Missing
from kvscope.signals.remedies import remedy
from kvscope.signals.samples import WATCH_LONGER, Samples, count_of
from probes.catalog import metric_of

T = TypeVar("T")
MOST = 600
_CLOCKS = ("sched.running", "batch.steps", "tokens.generated", "time.step", "latency.itl.count")
"""Whose sampling times cut the segment: the first that is there."""


class Intervals:
    """``times``: n + 1 of them; gauges have n + 1 values, counters n increases. Asked once each, then remembered."""

    def __init__(self, window: Samples, times: Sequence[float]) -> None:
        self.window = window
        self.times = times
        lengths = [after - before for before, after in pairwise(times)]
        gaps = gaps_of(lengths)
        self.lengths = [0.0 if at in gaps else dt for at, dt in enumerate(lengths)]
        """Seconds of each stretch; 0 where the engine was not watched."""
        self._gauges: dict[str, list[float] | None] = {}
        self._grown: dict[str, list[float] | None] = {}
        self._totals: dict[str, float | None] = {}
        self.derived: dict[Callable[[Intervals], object], object] = {}
        """What functions of these stretches gave: see ``once``."""

    @property
    def watched_s(self) -> float:
        """Seconds that were watched, gaps left out."""
        return sum(self.lengths)

    def weights(self) -> list[float]:
        """Seconds that each sample stands for: half of the stretches beside it."""
        lengths = [0.0, *self.lengths, 0.0]
        return [(before + after) / 2 for before, after in pairwise(lengths)]

    def gauge(self, metric: str) -> list[float] | None:
        """Return a gauge at each time (labels summed; averaged where it is a ratio), or None when nobody reports it."""
        if metric not in self._gauges:
            self._gauges[metric] = self._gauge(metric)
        return self._gauges[metric]

    def grown(self, metric: str) -> list[float] | None:
        """Return a counter's increase in each stretch, or None when nobody reports it."""
        if metric not in self._grown:
            keys = self.window.keys
            there = keys(metric) or keys(metric.removesuffix(".count"))
            counter = self.window.counter(metric) if there else None
            self._grown[metric] = self._increases(counter) if isinstance(counter, Flow) else None
        return self._grown[metric]

    def average(self, metric: str) -> float | None:
        """Return a gauge's average over the time watched."""
        values, watched = self.gauge(metric), self.watched_s
        if values is None or not watched:
            return None
        return sum(weight * value for weight, value in zip(self.weights(), values, strict=True)) / watched

    def total(self, metric: str) -> float | None:
        """Return a counter's increase over the whole segment."""
        if metric not in self._totals:
            grown = self.grown(metric)
            self._totals[metric] = None if grown is None else sum(grown)
        return self._totals[metric]

    def sum_of(self, metric: str) -> float | None:
        """Return the sum of an observation over the requests that reported one: a histogram's, or of each value."""
        return sum(self._observed(metric)) if self.window.keys(metric) else self.total(f"{metric}.sum")

    def count_of(self, metric: str) -> float | None:
        """Return how many values an observation had in the segment."""
        if self.window.keys(metric):
            return float(len(self._observed(metric)))
        return self.total(f"{metric}.count")

    def mean_of(self, metric: str) -> float | None:
        """Return the mean of an observation, or None where there was none."""
        total, count = self.sum_of(metric), self.count_of(metric)
        return total / count if total is not None and count else None

    def _observed(self, metric: str) -> list[float]:
        return [value for _, values in self.window.slices(metric).values() for value in values]

    def _gauge(self, metric: str) -> list[float] | None:
        slices = list(self.window.slices(metric).values())
        if not slices:
            return None
        columns = [_held(times, values, self.times) for times, values in slices]
        line = metric_of(metric)
        share = 1 / len(columns) if line and line.unit == "ratio" else 1.0
        return list(columns[0]) if len(columns) == 1 else [share * sum(row) for row in zip(*columns, strict=True)]

    def _increases(self, counter: Flow) -> list[float]:
        found = [0.0] * len(self.lengths)
        for part in counter.parts:
            at = None if part.jumps else _start_of(self.times, part.times)
            if at is not None:
                levels: Sequence[float] = part.levels[at : at + len(self.times)]
            else:
                # Just past each time: what came with a sample belongs to the stretch that the sample ends.
                levels = [part.sign * part.level(nextafter(t, inf)) for t in self.times]
            grown = map(sub, islice(levels, 1, None), levels)
            found = [one + part.sign * more for one, more in zip(found, grown, strict=True)]
        return found


def once(derive: Callable[[Intervals], T]) -> Callable[[Intervals], T]:
    """Have a function of stretches asked once for each of them; what it returns must not be written to."""

    @wraps(derive)
    def asked(cut: Intervals) -> T:
        if derive not in cut.derived:
            cut.derived[derive] = derive(cut)
        return cast(T, cut.derived[derive])

    return asked


def intervals_of(window: Samples) -> Intervals | Missing:
    """Return the stretches of a segment, made once until the store changes; Missing where it has too few samples."""
    key = ("intervals", window.segment.name, window.segment.start_s, window.segment.end_s, window.cell)
    memo = window.store.memo()
    known = memo.get(key)
    if not isinstance(known, Intervals | Missing):
        known = memo[key] = _cut(window)
    return known


def _cut(window: Samples) -> Intervals | Missing:
    times: Sequence[float] = ()
    for metric in _CLOCKS:
        slices = window.slices(metric)
        if slices:
            times = max((taken for taken, _ in slices.values()), key=len)
            break
    else:
        known = next((metric for metric in _CLOCKS if window.keys(metric)), None)
        if known:
            return window.absent(known)
        return Missing("no source reports requests, steps or tokens over time", remedy("sched.running", window.store))
    if len(times) < MIN_SAMPLES or times[-1] <= times[0]:
        return Missing(f"{metric}: {count_of(len(times))}, too few to tell one moment from the next", WATCH_LONGER)
    if len(times) > MOST:
        step = -(-len(times) // MOST)
        times = [*times[:-1:step], times[-1]]
    return Intervals(window, times)


def _held(times: Sequence[float], values: Sequence[float], cuts: Sequence[float]) -> Sequence[float]:
    """Return the newest value at each of ``cuts``; before the first sample, the first."""
    if _same(times, cuts):
        return values
    return [values[max(0, bisect_right(times, t) - 1)] for t in cuts]


def _start_of(cuts: Sequence[float], times: Sequence[float]) -> int | None:
    """Return where ``cuts`` lie in ``times`` as one run, or None where they do not."""
    at = bisect_left(times, cuts[0])
    last = at + len(cuts) - 1
    return at if last < len(times) and times[at] == cuts[0] and times[last] == cuts[-1] else None


def _same(times: Sequence[float], cuts: Sequence[float]) -> bool:
    return len(times) == len(cuts) and times[0] == cuts[0] and times[-1] == cuts[-1]
