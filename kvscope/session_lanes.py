"""Series in bins of equal length, filled as samples arrive: what the lines of the charts are drawn from."""

from __future__ import annotations

from math import nextafter

from kvscope.store import Store
from probes.sample import Labels

KEEP_BINS = 480
"""Older bins are dropped when there are more than this."""


class Lane:
    """One series in bins of ``bin_s``: a gauge's sum and count, or a counter's increase and the seconds it covers."""

    __slots__ = ("_last", "bin_s", "bins", "counter", "next_s")

    def __init__(self, bin_s: float, counter: bool) -> None:
        self.bin_s, self.counter = bin_s, counter
        self.bins: dict[int, tuple[float, float]] = {}
        self.next_s = float("-inf")
        self._last: tuple[float, float] | None = None

    def read(self, store: Store, metric: str, labels: Labels, start_s: float) -> None:
        """Take in what is new since the last call, or since ``start_s``."""
        times, values = store.series(metric, labels, max(self.next_s, start_s))
        for t, value in zip(times, values, strict=True):
            if self.counter:
                self._grow(t, value)
            else:
                self._put(int(t // self.bin_s), value, 1.0)
        if times:
            self.next_s = nextafter(times[-1], float("inf"))

    def _put(self, index: int, amount: float, weight: float) -> None:
        old = self.bins.get(index, (0.0, 0.0))
        self.bins[index] = (old[0] + amount, old[1] + weight)

    def _grow(self, t: float, value: float) -> None:
        """Spread an increase evenly over the bins between two samples; a reset says nothing about its interval."""
        last, self._last = self._last, (t, value)
        if last is None or value < last[1] or t <= last[0]:
            return
        at, rate = last[0], (value - last[1]) / (t - last[0])
        while at < t:
            index = int(at // self.bin_s)
            until = min(max((index + 1) * self.bin_s, nextafter(at, float("inf"))), t)
            self._put(index, rate * (until - at), until - at)
            at = until

    def forget(self, before: int) -> None:
        """Drop bins older than index ``before``."""
        if len(self.bins) > KEEP_BINS:
            self.bins = {index: value for index, value in self.bins.items() if index >= before}


class Track:
    """A metric over all its labels: sums of lanes, or means where the unit is a share."""

    def __init__(self, metric: str, bin_s: float, counter: bool, average: bool = False) -> None:
        self.metric, self.bin_s, self.counter, self.average = metric, bin_s, counter, average
        self.lanes: dict[Labels, Lane] = {}
        self._from_s = float("inf")

    def read(self, store: Store, start_s: float) -> None:
        """Take in what is new; all of it again where somebody went back to before what was read."""
        if start_s < self._from_s:
            self._from_s = start_s
            self.lanes.clear()
        for labels in store.keys(self.metric):
            if labels not in self.lanes:
                self.lanes[labels] = Lane(self.bin_s, self.counter)
            lane = self.lanes[labels]
            lane.read(store, self.metric, labels, start_s)
            lane.forget(int(start_s // self.bin_s))

    def increase(self, index: int) -> float | None:
        """A counter's increase within a bin, all labels."""
        found = [lane.bins[index][0] for lane in self.lanes.values() if index in lane.bins]
        return sum(found) if found else None

    def value(self, index: int) -> float | None:
        """Mean of a gauge or rate of a counter within a bin."""
        found = [lane.bins[index] for lane in self.lanes.values() if index in lane.bins]
        known = [total / weight for total, weight in found if weight > 0]
        if not known:
            return None
        return sum(known) / (len(known) if self.average else 1)
