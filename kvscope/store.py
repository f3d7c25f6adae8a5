"""Bounded rings of samples, one per (metric, labels), cut into segments by marks."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from probes.sample import Labels, Sample

UNMARKED = "all"
BEFORE_FIRST_MARK = "start"
DEFAULT_CAPACITY = 8192


@dataclass(frozen=True)
class Segment:
    """A stretch of the stream in which nothing was reconfigured: ``start_s`` <= t < ``end_s``, epoch seconds."""

    name: str
    start_s: float
    end_s: float
    tags: dict[str, str] = field(default_factory=dict)


class MarkLike(Protocol):
    """What cuts the stream: ``kvscope.sources`` owns the class, and stands above this file."""

    @property
    def name(self) -> str: ...
    @property
    def t(self) -> float: ...
    @property
    def tags(self) -> Mapping[str, str]: ...


class _Series:
    """Times and values of one series, oldest first; ``fell``: a value was ever lower than the one before it."""

    __slots__ = ("fell", "times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")
        self.fell = False

    def thin_older_half(self) -> None:
        """Drop every second sample of the older half: an old baseline loses resolution, never its existence."""
        half = len(self.times) // 2
        self.times = self.times[:half:2] + self.times[half:]
        self.values = self.values[:half:2] + self.values[half:]


class Store:
    """Everything a session remembers: about ``capacity_per_series`` samples of each series, thinned with age."""

    def __init__(self, capacity_per_series: int = DEFAULT_CAPACITY) -> None:
        self._capacity = max(4, capacity_per_series)
        self._series: dict[str, dict[Labels, _Series]] = {}
        self._marks: list[MarkLike] = []
        self._first = math.inf
        self._last = -math.inf
        self._open_memo: dict[object, object] = {}
        self._closed_memo: dict[object, object] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Append samples; a value that is not a number, or older than its series' newest, is dropped."""
        capacity = self._capacity
        for metric, value, t, labels in samples:
            by_labels = self._series.get(metric)
            if by_labels is None:
                by_labels = self._series[metric] = {}
            series = by_labels.get(labels)
            if series is None:
                series = by_labels[labels] = _Series()
            times = series.times
            if value != value or (times and t < times[-1]):
                continue
            if times and value < series.values[-1]:
                series.fell = True
            times.append(t)
            series.values.append(value)
            if len(times) > capacity:
                series.thin_older_half()
            if t < self._first:
                self._first = t
            if t > self._last:
                self._last = t
        self._open_memo.clear()

    def mark(self, mark: MarkLike) -> None:
        """Start a segment at ``mark.t``; the one before it ends there."""
        self._marks.append(mark)
        self._marks.sort(key=lambda m: m.t)
        self._open_memo.clear()
        self._closed_memo.clear()

    def memo(self, segment: Segment | None = None) -> dict[object, object]:
        """Return what others computed: over a closed ``segment`` kept until the next mark, else until new samples."""
        closed = segment is not None and any(mark.t == segment.end_s for mark in self._marks)
        return self._closed_memo if closed else self._open_memo

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Segments in time order; the last is open and ends just after the newest sample."""
        if not self._series or self._first > self._last:
            return ()
        end = math.nextafter(self._last, math.inf)
        marks = self._marks
        if not marks:
            return (Segment(UNMARKED, self._first, end),)
        found = []
        if marks[0].t > self._first:
            found.append(Segment(BEFORE_FIRST_MARK, self._first, marks[0].t))
        for index, mark in enumerate(marks):
            until = marks[index + 1].t if index + 1 < len(marks) else max(end, mark.t)
            found.append(Segment(mark.name, mark.t, until, dict(mark.tags)))
        return tuple(found)

    def segment(self, name: str) -> Segment:
        """Return the newest segment of that name; KeyError names the valid ones."""
        for segment in reversed(self.segments):
            if segment.name == name:
                return segment
        raise KeyError(f"no segment {name!r}; there are: {', '.join(s.name for s in self.segments) or 'none'}")

    def metrics(self) -> list[str]:
        """Names of every metric seen, sorted."""
        return sorted(self._series)

    def keys(self, metric: str) -> list[Labels]:
        """Label sets under which ``metric`` was seen."""
        return list(self._series.get(metric, ()))

    def series(
        self, metric: str, labels: Labels = (), start_s: float | None = None, end_s: float | None = None
    ) -> tuple[array[float], array[float]]:
        """Return times and values with ``start_s`` <= t < ``end_s`` (copies; empty when unknown)."""
        series = self._series.get(metric, {}).get(labels)
        if series is None:
            return array("d"), array("d")
        low = 0 if start_s is None else bisect_left(series.times, start_s)
        high = len(series.times) if end_s is None else bisect_left(series.times, end_s)
        return series.times[low:high], series.values[low:high]

    def ever_fell(self, metric: str, labels: Labels = ()) -> bool:
        """Whether a series ever went back: for a counter, whether it was ever reset."""
        series = self._series.get(metric, {}).get(labels)
        return series is not None and series.fell

    def latest(self, metric: str, labels: Labels = (), before_s: float | None = None) -> float | None:
        """Return the newest value (the newest at or before ``before_s``), or None."""
        series = self._series.get(metric, {}).get(labels)
        if series is None or not series.times:
            return None
        index = len(series.times) if before_s is None else bisect_right(series.times, before_s)
        return series.values[index - 1] if index else None

    @property
    def span(self) -> tuple[float, float] | None:
        """Times of the oldest and the newest sample, or None while empty."""
        return None if self._first > self._last else (self._first, self._last)
