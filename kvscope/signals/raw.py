"""Samples of one segment as formulas may use them: summed over labels, resets undone, gaps and absences named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import sub
from statistics import median

from kvscope.signals import batches as bm
from kvscope.signals.reading import Missing
from kvscope.signals.remedies import remedy
from kvscope.store import Segment, Store
from probes.catalog import metric_of
from probes.sample import Labels

MIN_SAMPLES = 3
WATCH_LONGER = f"watch for longer: at least {MIN_SAMPLES} samples"
_GAP_FACTOR, _GAP_FLOOR_S = 5.0, 5.0

Part = tuple[Sequence[float], Sequence[float], int]
"""Times and values of a counter that never falls, and the sign it counts with."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A sum of counters over labels and metrics; only its increases mean something."""

    parts: tuple[Part, ...]
    resets: int = 0

    @property
    def start_s(self) -> float:
        return min(times[0] for times, _, _ in self.parts)

    @property
    def end_s(self) -> float:
        return max(times[-1] for times, _, _ in self.parts)

    @property
    def samples(self) -> int:
        return max(len(times) for times, _, _ in self.parts)

    def grown(self, cuts: Sequence[float]) -> list[float]:
        """Return the increase between every two times of ``cuts``."""
        levels = [sum(sign * bm.at(times, values, t) for times, values, sign in self.parts) for t in cuts]
        return [after - before for before, after in pairwise(levels)]

    def plus(self, *others: Counter) -> Counter:
        """Return the sum of counters."""
        parts = self.parts + tuple(part for other in others for part in other.parts)
        return Counter(parts, max([self.resets, *(other.resets for other in others)]))

    def minus(self, other: Counter) -> Counter:
        """Return this counter less another (both of one source, so that their times agree)."""
        return self.plus(Counter(tuple((t, v, -sign) for t, v, sign in other.parts), other.resets))


class Samples:
    """One segment of one store; everything read through it is remembered until the store changes."""

    def __init__(self, store: Store, segment: Segment) -> None:
        self.store = store
        self.segment = segment
        self._counters: dict[str, Counter | Missing] = {}
        self._rows: dict[tuple[str, ...], list[tuple[float, ...]] | Missing] = {}
        self._gaps: dict[tuple[int, float, float], str] = {}

    def slices(self, metric: str, **only: str) -> dict[Labels, tuple[Sequence[float], Sequence[float]]]:
        """Return times and values of the label sets of ``metric`` (those that carry ``only``) with samples here."""
        found: dict[Labels, tuple[Sequence[float], Sequence[float]]] = {}
        for labels in self.store.keys(metric):
            if only and not only.items() <= dict(labels).items():
                continue
            times, values = self.store.series(metric, labels, self.segment.start_s, self.segment.end_s)
            if times:
                found[labels] = (times, values)
        return found

    def counter(self, metric: str, **only: str) -> Counter | Missing:
        """Return a counter summed over its labels, or over those that carry ``only``."""
        if only:
            return self._counter(metric, only)
        if metric not in self._counters:
            self._counters[metric] = self._counter(metric, only)
        return self._counters[metric]

    def _counter(self, metric: str, only: dict[str, str]) -> Counter | Missing:
        parts: list[Part] = []
        resets = 0
        for labels, (times, values) in self.slices(metric, **only).items():
            if self.store.ever_fell(metric, labels):
                values, back = bm.increase(times, values)
                resets += back
            parts.append((times, values, 1))
        if not parts:
            return absent(metric, self.store)
        counter = Counter(tuple(parts), resets)
        if counter.samples < MIN_SAMPLES:
            return Missing(
                f"{metric}: {count_text(counter.samples)}, only a total since the engine started", WATCH_LONGER
            )
        return counter

    def total(self, metrics: Iterable[str]) -> Counter | Missing:
        """Return the sum of several counters; Missing names the first one that nobody reports."""
        found: list[Counter] = []
        for metric in metrics:
            one = self.counter(metric)
            if isinstance(one, Missing):
                return one
            found.append(one)
        return found[0].plus(*found[1:])

    def setting(self, metric: str) -> float | Missing:
        """Return a configured value: the newest at or before the segment's end, however long ago it was said."""
        line = metric_of(metric)
        found = [self.store.latest(metric, labels, self.segment.end_s) for labels in self.store.keys(metric)]
        known = [value for value in found if value is not None]
        if not known:
            return absent(metric, self.store)
        return sum(known) / (len(known) if line and line.unit == "ratio" else 1)

    def together(self, *metrics: str) -> list[tuple[float, ...]] | Missing:
        """Return values of gauges that were sampled at the same times, one row per time, summed over labels."""
        if metrics not in self._rows:
            self._rows[metrics] = self._together(metrics)
        return self._rows[metrics]

    def _together(self, metrics: tuple[str, ...]) -> list[tuple[float, ...]] | Missing:
        columns = []
        for metric in metrics:
            slices = self.slices(metric)
            if not slices:
                return absent(metric, self.store)
            sums: dict[float, float] = {}
            for times, values in slices.values():
                for t, value in zip(times, values, strict=True):
                    sums[t] = sums.get(t, 0.0) + value
            columns.append(sums)
        shared = sorted(set(columns[0]).intersection(*columns[1:]))
        if len(shared) < MIN_SAMPLES:
            return Missing(f"{' and '.join(metrics)}: {count_text(len(shared))} taken together", WATCH_LONGER)
        return [tuple(column[t] for column in columns) for t in shared]

    def source(self, counter: Counter) -> str:
        """Say where a number read from ``counter`` comes from, with its gaps and resets."""
        note = self.gap(counter.parts[0][0])
        if counter.resets:
            note += f"; {counter.resets} counter reset{'s' if counter.resets > 1 else ''} survived"
        return "measured" + note

    def gap(self, times: Sequence[float]) -> str:
        """Say how long the sampling of a series stopped, or nothing; asked once for all series sampled together."""
        key = (len(times), times[0], times[-1])
        if key not in self._gaps:
            self._gaps[key] = gap_note(times)
        return self._gaps[key]

    def observed(self, metric: str) -> tuple[list[float], list[float]] | Missing:
        """Return times and values of an observation (one per finished request), all labels, in time order."""
        pairs = sorted(
            (t, v) for times, values in self.slices(metric).values() for t, v in zip(times, values, strict=True)
        )
        if not pairs:
            return absent(metric, self.store)
        return [t for t, _ in pairs], [v for _, v in pairs]


def gap_note(times: Sequence[float]) -> str:
    """Say how long the sampling stopped within the segment, or nothing."""
    if len(times) < MIN_SAMPLES:
        return ""
    longest = max(map(sub, times[1:], times))
    if longest <= _GAP_FLOOR_S or longest <= _GAP_FACTOR * median(map(sub, times[1:], times)):
        return ""
    return f"; a gap of {longest:.0f} s without samples"


def absent(metric: str, store: Store) -> Missing:
    """Say that no source reports ``metric`` (or not in this segment), and what would."""
    if store.keys(metric):
        return Missing(f"no sample of {metric} in this segment", WATCH_LONGER)
    line = metric_of(metric)
    what = f" ({line.help.rstrip('.')})" if line else ""
    return Missing(
        f"no source reports {metric}{what}", remedy(metric.removesuffix(".sum").removesuffix(".count"), store)
    )


def count_text(samples: int) -> str:
    return f"{samples} sample{'' if samples == 1 else 's'} in this segment"
