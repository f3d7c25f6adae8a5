"""A segment as the formulas see it: rates, ratios and means with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvscope.signals import batches as bm
from kvscope.signals.raw import MIN_SAMPLES, WATCH_LONGER, Counter, Samples, absent, count_text
from kvscope.signals.reading import Missing, Reading
from probes.catalog import metric_of

__all__ = ["WATCH_LONGER", "Counter", "Gauge", "Window"]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge over the window: its batch means, how many samples went in, and a note on gaps."""

    means: tuple[float, ...]
    samples: int
    note: str = ""


class Window(Samples):
    """Readings over one segment."""

    def increase_of(self, metric: str, **only: str) -> float | Missing:
        """Return by how much a counter grew over the whole segment."""
        counter = self.counter(metric, **only)
        return counter if isinstance(counter, Missing) else counter.grown([counter.start_s, counter.end_s])[0]

    def rate(self, metric: str, unit: str) -> Reading | Missing:
        """Return increase / time of a counter."""
        counter = self.counter(metric)
        if isinstance(counter, Missing):
            return counter
        cuts = _cuts(counter.start_s, counter.end_s, counter.samples)
        if cuts is None:
            return Missing(f"{metric}: no time passed", WATCH_LONGER)
        tops = counter.grown(cuts)
        bottoms = [b - a for a, b in pairwise(cuts)]
        value, error = bm.ratio_and_error(tops, bottoms)
        return Reading(value, error, unit, self.source(counter), len(tops), counter.samples)

    def ratio(
        self,
        top: Counter | Missing,
        bottom: Counter | Missing,
        unit: str,
        nothing: str = "",
    ) -> Reading | Missing:
        """Return increase of ``top`` / increase of ``bottom``; Missing(``nothing``) where the bottom stood still."""
        if isinstance(top, Missing):
            return top
        if isinstance(bottom, Missing):
            return bottom
        start, end = max(top.start_s, bottom.start_s), min(top.end_s, bottom.end_s)
        cuts = _cuts(start, end, min(top.samples, bottom.samples))
        if cuts is None:
            return Missing("the two counters were never sampled together", WATCH_LONGER)
        tops = top.grown(cuts)
        bottoms = bottom.grown(cuts)
        if sum(bottoms) <= 0:
            return Missing(nothing or "nothing was counted in this segment", "send the engine some work")
        value, error = bm.ratio_and_error(tops, bottoms)
        return Reading(value, error, unit, self.source(top.plus(bottom)), len(tops), bottom.samples)

    def gauge(self, metric: str, combine: str = "") -> Gauge | Missing:
        """Return a gauge's batch means; label sets are summed, or averaged where the unit is a ratio."""
        slices = self.slices(metric)
        if not slices:
            return absent(metric, self.store)
        samples = max(len(times) for times, _ in slices.values())
        if samples < MIN_SAMPLES:
            return Missing(f"{metric}: {count_text(samples)}, too few to give an error", WATCH_LONGER)
        cuts = _cuts(
            min(times[0] for times, _ in slices.values()), max(times[-1] for times, _ in slices.values()), samples
        )
        if cuts is None:
            return Missing(f"{metric}: no time passed", WATCH_LONGER)
        per_label = [bm.bin_means(times, values, cuts) for times, values in slices.values()]
        line = metric_of(metric)
        average = (combine or ("mean" if line and line.unit == "ratio" else "sum")) == "mean"
        means = []
        for column in zip(*per_label, strict=True):
            known = [value for value in column if value is not None]
            if len(known) == len(column) or (known and average):
                means.append(sum(known) / (len(known) if average else 1))
        if len(means) < 2:
            return Missing(f"{metric}: samples in only {len(means)} of the segment's batches", WATCH_LONGER)
        return Gauge(tuple(means), samples, self.gap(next(iter(slices.values()))[0]))

    def spread(self, values: Sequence[float], unit: str) -> Reading:
        """Return the mean of values taken one after another, with the error of their batch means."""
        count = min(bm.BATCHES, len(values))
        groups = [values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count)]
        value, error = bm.mean_and_error([sum(group) / len(group) for group in groups])
        return Reading(value, error, unit, "measured", count, len(values))

    def mean(self, metric: str, unit: str) -> Reading | Missing:
        """Return the time average of a gauge."""
        gauge = self.gauge(metric)
        if isinstance(gauge, Missing):
            return gauge
        value, error = bm.mean_and_error(gauge.means)
        return Reading(value, error, unit, f"measured{gauge.note}", len(gauge.means), gauge.samples)

    def setting_reading(self, metric: str, unit: str) -> Reading | Missing:
        """Return a configured value as a reading: averaged where it moves, exact where it was said once."""
        moving = self.mean(metric, unit)
        if isinstance(moving, Reading):
            return moving
        value = self.setting(metric)
        return value if isinstance(value, Missing) else Reading(value, 0.0, unit, "measured: as configured", 1, 1)


def _cuts(start_s: float, end_s: float, samples: int) -> list[float] | None:
    count = min(bm.BATCHES, samples - 1)
    return bm.edges(start_s, end_s, count) if count >= 2 and end_s > start_s else None
