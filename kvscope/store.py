"""Bounded rings of samples, one per (metric, labels), cut into segments by marks."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from probes.border import EARLIEST_S, LARGEST, LATEST_S, weight, written
from probes.sample import Labels, Sample

if TYPE_CHECKING:
    from kvscope.bound import Physics

UNMARKED = "all"
BEFORE_FIRST_MARK = "start"
DEFAULT_CAPACITY = 8192
DEFAULT_BYTES = 96 << 20
"""What all series together may weigh. A thousand series of ``DEFAULT_CAPACITY`` samples weigh 130 MB and are thinned;
what a label set weighs beside its samples is counted too, so that labels invented anew are bounded as well."""
ENDED_S = 60.0
"""A series that got nothing for so long, while others did, goes first when room is needed."""
LIVE_CAPACITY = 768
"""Samples of a series that a running target is polled for: six minutes of a second each whole, and what came before
evenly. All are full after 13 minutes: what a dashboard weighs stops growing within a quarter of an hour."""
FORGOTTEN_S, ENDED_KEPT = 300.0, 32
"""A series of a running target that ended so long ago is forgotten, the newest so many of each metric aside."""
MOST_MARKS = 200
"""Segments beyond these are merged into the first: every one of them is summed up in a report."""
_SERIES_BYTES = 600
_SAMPLE_BYTES = 18
_FEW_SAMPLES = 64
"""A series of fewer is not thinned: it would cost more of what is known than it frees."""


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

    __slots__ = ("base", "fell", "times", "values")

    def __init__(self, base: int = 0) -> None:
        self.base = base
        """Bytes it weighs without samples."""
        self.times = array("d")
        self.values = array("d")
        self.fell = False

    def __len__(self) -> int:
        return len(self.times)

    def thin_older_half(self, memo: dict[bytes, list[int]]) -> int:
        """Drop about half of the older half, the nearest to their neighbours: history keeps an even resolution.

        An old baseline so loses detail as the whole gets longer, never its existence. ``memo``: which places stay, for
        the series of a page, whose times are the same. Returns how many went.
        """
        half = len(self.times) // 2
        older = self.times[:half]
        key = older.tobytes()
        if key not in memo:
            memo.clear()
            memo[key] = _spaced(older)
        kept = memo[key]
        self.times = array("d", [older[at] for at in kept]) + self.times[half:]
        self.values = array("d", [self.values[at] for at in kept]) + self.values[half:]
        return half - len(kept)


def _spaced(times: array[float]) -> list[int]:
    """Return the places of the first of ``times`` and of those that lie apart; about half, and one less than all."""
    # Three quarters of twice the mean step: uneven times lose no more than every second one, as even ones do.
    apart = 1.5 * (times[-1] - times[0]) / max(1, len(times) - 1)
    kept, last = [0], times[0]
    for at, t in enumerate(times):
        if t - last >= apart and at:
            kept.append(at)
            last = t
    return kept if len(kept) < len(times) else kept[::2]


def sensible(metric: str, labels: Labels) -> bool:
    """Whether the labels that are numbers are: a bucket's bound (which every bucket has), a layer, a rank."""
    bounded = False
    for name, value in labels:
        if name in ("layer", "rank") and not (value.isascii() and value.isdecimal() and len(value) <= 9):
            return False
        if name == "le":
            bounded = True
            try:
                written(value, name) if value != "+Inf" else None
            except ValueError:
                return False
    return bounded or not metric.endswith(".bucket")


class Store:
    """Everything a session remembers: about ``capacity_per_series`` samples of each series, thinned with age.

    All of it weighs ``most_bytes`` at most: then series that ended are dropped, the longest are thinned, and what is
    still too much is not taken. ``notices`` tells what was lost.
    """

    facts: Physics | None = None
    """What is known of model and device and no sample says."""

    def __init__(
        self,
        capacity_per_series: int = DEFAULT_CAPACITY,
        most_bytes: int = DEFAULT_BYTES,
        forgotten_s: float = math.inf,
    ) -> None:
        self._capacity, self._forgotten_s = max(4, capacity_per_series), forgotten_s
        self._forget_at, self._forgot = -math.inf, 0
        self._kept_places: dict[bytes, list[int]] = {}
        self._most_bytes, self._bytes = most_bytes, 0
        self._dropped = self._refused = self._thinned = 0
        self._full_until = -math.inf
        self._unmarked = self._senseless = 0
        self._cuts: frozenset[float] = frozenset()
        self._series: dict[str, dict[Labels, _Series]] = {}
        self._marks: list[MarkLike] = []
        self._first = math.inf
        self._last = -math.inf
        self._open_memo: dict[object, object] = {}
        self._closed_memo: dict[object, object] = {}

    @classmethod
    def live(cls) -> Store:
        """Return a store for a target that is polled for hours: it stops growing after minutes."""
        return cls(LIVE_CAPACITY, forgotten_s=FORGOTTEN_S)

    def add(self, samples: Iterable[Sample]) -> None:
        """Append samples; a value that is not a number, or older than its series' newest, is dropped."""
        capacity, taken = self._capacity, 0
        for metric, value, t, labels in samples:
            by_labels = self._series.get(metric)
            if by_labels is None:
                by_labels = self._series[metric] = {}
            series = by_labels.get(labels)
            if series is None:
                series = self._fresh(metric, labels)
                if series is None:
                    continue
                by_labels[labels] = series
            times = series.times
            if not -LARGEST <= value <= LARGEST or not EARLIEST_S <= t <= LATEST_S:
                # True for what is not a number, too.
                continue
            if times and t < times[-1]:
                continue
            taken += 1
            if times and value < series.values[-1]:
                series.fell = True
            times.append(t)
            series.values.append(value)
            if len(times) > capacity:
                taken -= series.thin_older_half(self._kept_places)
            if t < self._first:
                self._first = t
            if t > self._last:
                self._last = t
        self._bytes += taken * _SAMPLE_BYTES
        if self._last >= self._forget_at:
            self._forget()
        if self._bytes > self._most_bytes:
            self._make_room()
        self._open_memo.clear()

    @property
    def notices(self) -> tuple[str, ...]:
        """What does not fit and was lost, a line each; empty while everything is held."""
        told = (
            (self._dropped, "series that had ended were dropped"),
            (self._refused, "values of further series were not taken"),
            (self._thinned, "times the longest series lost every second value of their older half"),
        )
        budget = f"to stay within {self._most_bytes >> 20} MiB"
        lost = [f"{count} {what} {budget}" for count, what in told if count]
        if self._forgot:
            lost.append(f"{self._forgot} series that ended over {self._forgotten_s / 60:.0f} min ago were dropped")
        if self._senseless:
            lost.append(f"{self._senseless} values were left out: their labels (le, layer, rank) are no numbers")
        if self._unmarked:
            lost.append(f"{self._unmarked} marks were left out: {MOST_MARKS} segments are kept, the newest")
        return tuple(lost)

    def _fresh(self, metric: str, labels: Labels) -> _Series | None:
        """Return a new series, or None where no room can be made for it."""
        if not sensible(metric, labels):
            self._senseless += 1
            return None
        base = _SERIES_BYTES + len(metric) + weight(labels)
        if self._bytes + base > self._most_bytes:
            if self._last >= self._full_until:
                self._make_room()
            if self._bytes + base > self._most_bytes:
                # Looked through again only when something may have ended meanwhile, not for each that is refused.
                self._full_until = max(self._full_until, self._last + ENDED_S / 4)
                self._refused += 1
                return None
        self._bytes += base
        return _Series(base)

    def _make_room(self) -> None:
        """Drop what ended and thin what is long until a tenth of the budget is free, as far as that can be."""
        aim = self._most_bytes * 9 // 10
        if self._bytes > aim:
            self._drop_ended()
        while self._bytes > aim:
            longest = max((s for of in self._series.values() for s in of.values()), key=len, default=None)
            if longest is None or len(longest) < _FEW_SAMPLES:
                break
            least = len(longest) // 2
            for series in [s for of in self._series.values() for s in of.values() if len(s) > least]:
                self._bytes -= series.thin_older_half(self._kept_places) * _SAMPLE_BYTES
            self._thinned += 1
        self._open_memo.clear()
        self._closed_memo.clear()

    def _forget(self) -> None:
        """Drop what ended long ago, but for the last few of each metric: a replica that died is still told of."""
        self._forget_at = self._last + ENDED_S
        past = self._last - self._forgotten_s
        for by_labels in self._series.values():
            if len(by_labels) <= ENDED_KEPT:
                continue
            ended = sorted((s.times[-1], labels) for labels, s in by_labels.items() if s.times and s.times[-1] < past)
            for _, labels in ended[:-ENDED_KEPT]:
                self._drop(by_labels, labels)
                self._forgot += 1

    def _drop(self, by_labels: dict[Labels, _Series], labels: Labels) -> None:
        gone = by_labels.pop(labels)
        self._bytes -= gone.base + len(gone) * _SAMPLE_BYTES

    def _drop_ended(self) -> None:
        for by_labels in self._series.values():
            ended = [labels for labels, s in by_labels.items() if not s.times or s.times[-1] < self._last - ENDED_S]
            # The last series of a metric stays: what was said once is not unsaid for want of room.
            for labels in ended if len(ended) < len(by_labels) else ended[:-1]:
                self._drop(by_labels, labels)
                self._dropped += 1

    def mark(self, mark: MarkLike) -> None:
        """Start a segment at ``mark.t``; the one before it ends there."""
        self._marks.append(mark)
        self._marks.sort(key=lambda m: m.t)
        if len(self._marks) > MOST_MARKS:
            del self._marks[0]
            self._unmarked += 1
        self._cuts = frozenset(mark.t for mark in self._marks)
        self._open_memo.clear()
        self._closed_memo.clear()

    def memo(self, segment: Segment | None = None) -> dict[object, object]:
        """Return what others computed: over a closed ``segment`` kept until the next mark, else until new samples."""
        closed = segment is not None and segment.end_s in self._cuts
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
        self,
        metric: str,
        labels: Labels = (),
        start_s: float | None = None,
        end_s: float | None = None,
        around: bool = False,
    ) -> tuple[array[float], array[float]]:
        """Return times and values with ``start_s`` <= t < ``end_s`` (copies; empty when unknown).

        With ``around`` the sample before them and the one after come too, where there are.
        """
        series = self._series.get(metric, {}).get(labels)
        if series is None:
            return array("d"), array("d")
        low = 0 if start_s is None else bisect_left(series.times, start_s)
        high = len(series.times) if end_s is None else bisect_left(series.times, end_s)
        if around:
            low, high = max(0, low - 1), high + 1
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

    def newest(self, metric: str) -> float | None:
        """Return when any series of ``metric`` spoke last, or None."""
        return max((one.times[-1] for one in self._series.get(metric, {}).values() if one.times), default=None)

    @property
    def span(self) -> tuple[float, float] | None:
        """Times of the oldest and the newest sample, or None while empty."""
        return None if self._first > self._last else (self._first, self._last)
