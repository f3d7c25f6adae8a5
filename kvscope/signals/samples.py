"""Samples of one segment as expressions read them: summed over labels, resets undone, gaps and absences named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from math import inf, nextafter
from operator import add, mul, sub

from kvscope.signals.algebra import Amount, EitherAmount, Flowing
from kvscope.signals.flows import MIN_SAMPLES, Flow, Part, counted, gap_note, weights
from kvscope.signals.reading import Missing
from kvscope.signals.remedies import remedy
from kvscope.store import Segment, Store
from probes.catalog import REPLICA, metric_of
from probes.sample import Labels

WATCH_LONGER = f"watch for longer: at least {MIN_SAMPLES} samples"
SEND_WORK = "send the engine some work"
_MIN_REQUESTS = 5
Series = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One replica, rank, layer or GPU. What does not carry its label is read too, unless it is said of another one."""

    label: str
    value: str
    beside: Labels = ()
    """Other labels that the cell's own series carry."""

    def admits(self, labels: Labels) -> bool:
        """Whether a series is part of the cell."""
        told = dict(labels)
        if self.label in told or self.label == REPLICA:
            return told.get(self.label) == self.value
        own = dict(self.beside)
        return all(own.get(name, value) == value for name, value in labels)


@dataclass(frozen=True, slots=True)
class Moments:
    """Gauges by metric at common ``times``, and for how long each sample ``stands``."""

    times: Sequence[float]
    stands: Sequence[float]
    columns: Mapping[str, Sequence[float]]

    def total(self, amount: Amount) -> Sequence[float]:
        """Return gauges added up."""
        total = self.columns[amount.metrics[0]]
        for metric in amount.metrics[1:]:
            total = list(map(add, total, self.columns[metric]))
        for metric in amount.less:
            total = list(map(sub, total, self.columns[metric]))
        return total

    def stood(self, values: Iterable[float]) -> Flow:
        """Return values as they came, each times how long it stood."""
        return Flow((Part(self.times, list(accumulate(map(mul, values, self.stands))), jumps=True),))


class Samples:
    """One segment of one store, or one cell of it; what is read is remembered for as long as the object lives.

    For a line that is ``drawn`` one sample will do, and counters and gauges are read with a sample to either side: the
    first of a bin says by how much it grew only beside the one before it.
    """

    def __init__(self, store: Store, segment: Segment, cell: Cell | None = None, *, drawn: bool = False) -> None:
        self.store, self.segment, self.cell, self.drawn = store, segment, cell, drawn
        self._least = 1 if drawn else MIN_SAMPLES
        self._flows: dict[tuple[str, ...], Flow | Missing] = {}
        self._parts: dict[str, dict[Labels, Flow] | Missing] = {}
        self._moments: dict[tuple[str, ...], Moments | Missing] = {}
        self._weights: dict[tuple[int, float, float], list[float]] = {}
        self._gaps: dict[tuple[int, float, float], str] = {}
        self.histograms: dict[str, dict[float, float] | Missing] = {}
        """What ``evaluate.buckets`` read here: three percentiles of one latency read it once."""

    def keys(self, metric: str) -> list[Labels]:
        """Return the label sets of ``metric`` that are read here."""
        found = self.store.keys(metric)
        return found if self.cell is None else [labels for labels in found if self.cell.admits(labels)]

    def slices(self, metric: str, around: bool = False, **only: str) -> dict[Labels, Series]:
        """Return times and values of the label sets of ``metric`` (those that carry ``only``) with samples here."""
        found: dict[Labels, Series] = {}
        start, end = self.segment.start_s, self.segment.end_s
        for labels in self.keys(metric):
            if only and not only.items() <= dict(labels).items():
                continue
            times, values = self.store.series(metric, labels, start, end, around=around and self.drawn)
            if times:
                found[labels] = (times, values)
        return found

    def part(self, start: float, end: float) -> Samples:
        """Return a part of the segment, given as shares of its length."""
        whole, length = self.segment, self.segment.end_s - self.segment.start_s
        return self.over(replace(whole, start_s=whole.start_s + start * length, end_s=whole.start_s + end * length))

    def over(self, segment: Segment) -> Samples:
        """Return the same cell of another segment."""
        return Samples(self.store, segment, self.cell, drawn=self.drawn)

    def only(self, cell: Cell) -> Samples:
        """Return one cell of this segment."""
        return Samples(self.store, self.segment, cell, drawn=self.drawn)

    def flow(self, of: Flowing) -> Flow | Missing:
        """Return what ``of`` grew by; Missing names the first metric that nobody reports."""
        if isinstance(of, EitherAmount):
            found = [self.flow(option) for option in of.options]
            return next((one for one in found if isinstance(one, Flow)), found[-1])
        return self._sum(of.metrics, of.less)

    def _sum(self, metrics: tuple[str, ...], less: tuple[str, ...]) -> Flow | Missing:
        flows: list[Flow] = []
        for metric in (*metrics, *less):
            one = self.counter(metric)
            if isinstance(one, Missing):
                return one
            flows.append(one)
        total = flows[0].plus(*flows[1 : len(metrics)]) if len(metrics) > 1 else flows[0]
        return reduce(Flow.minus, flows[len(metrics) :], total)

    def counter(self, metric: str, **only: str) -> Flow | Missing:
        """Return a counter, or an observation, summed over its labels (those that carry ``only``)."""
        key = (metric, *(f"{name}={value}" for name, value in only.items()))
        if key not in self._flows:
            self._flows[key] = self._observed(metric) or self._counted(metric, only)
        return self._flows[key]

    def _observed(self, metric: str) -> Flow | Missing | None:
        """Return one value (or 1, of a count) for each request; None where requests are not told one by one."""
        line, stem = metric_of(metric), metric.removesuffix(".count")
        if line is None or line.kind != "observation" or line.name != stem:
            return None
        pairs = self.observed(stem)
        if isinstance(pairs, Missing):
            return None if metric != stem else self._counted(f"{stem}.sum", {})
        times, values = pairs
        if len(values) < _MIN_REQUESTS and not self.drawn:
            return Missing(f"{stem}: only {len(values)} requests finished in this segment", WATCH_LONGER)
        ones: Iterable[float] = values if metric == stem else (1.0 for _ in values)
        levels, total = [], 0.0
        for one in ones:
            total += one
            levels.append(total)
        return Flow((Part(times, levels, jumps=True),))

    def _counted(self, metric: str, only: dict[str, str]) -> Flow | Missing:
        flows = self.parts(metric)
        if isinstance(flows, Missing):
            return flows
        chosen = [flow for labels, flow in flows.items() if not only or only.items() <= dict(labels).items()]
        if not chosen:
            return self.absent(metric)
        return Flow(tuple(part for one in chosen for part in one.parts), sum(one.resets for one in chosen))

    def parts(self, metric: str) -> dict[Labels, Flow] | Missing:
        """Return the flow of each label set of a counter, read once; Missing where a total only was told."""
        if metric not in self._parts:
            self._parts[metric] = self._read(metric)
        return self._parts[metric]

    def _read(self, metric: str) -> dict[Labels, Flow] | Missing:
        found: dict[Labels, Flow] = {}
        for labels, (times, values) in self.slices(metric, around=True).items():
            part, resets = counted(times, values, self.store.ever_fell(metric, labels))
            found[labels] = Flow((part,), resets)
        if not found:
            return self.absent(metric)
        most = max(flow.samples for flow in found.values())
        if most < self._least:
            return Missing(f"{metric}: {count_of(most)}, only a total since the engine started", WATCH_LONGER)
        return found

    def level(self, metric: str, around: bool = False) -> Series | Missing:
        """Return a gauge over its labels: added up, or averaged where its unit is a share.

        What adds up is known only while every label set is there.
        """
        slices = list(self.slices(metric, around).values())
        if not slices:
            return self.absent(metric)
        if len(slices) == 1:
            return slices[0]
        line = metric_of(metric)
        average = line is not None and line.unit == "ratio"
        times = slices[0][0]
        if all(other == times for other, _ in slices[1:]):
            sums = [sum(column) for column in zip(*(values for _, values in slices), strict=True)]
            return times, [total / len(slices) for total in sums] if average else sums
        return _merged(slices, average)

    def moments(self, *amounts: Amount) -> Moments | Missing:
        """Return gauges at the times at which all were sampled."""
        metrics = tuple(dict.fromkeys(metric for one in amounts for metric in (*one.metrics, *one.less)))
        if metrics not in self._moments:
            self._moments[metrics] = self._together(metrics)
        return self._moments[metrics]

    def together(self, *metrics: str) -> list[tuple[float, ...]] | Missing:
        """Return time and values of gauges that were sampled at the same times, one row per time."""
        found = self.moments(Amount(metrics))
        if isinstance(found, Missing):
            return found
        return list(zip(found.times, *(found.columns[metric] for metric in metrics), strict=True))

    def _together(self, metrics: tuple[str, ...]) -> Moments | Missing:
        series = []
        for metric in metrics:
            found = self.level(metric, around=True)
            if isinstance(found, Missing):
                return found
            series.append(found)
        times, columns = series[0][0], [values for _, values in series]
        if any(other is not times and other != times for other, _ in series[1:]):
            at = [dict(zip(*one, strict=True)) for one in series]
            times = sorted(set(at[0]).intersection(*at[1:]))
            columns = [[one[t] for t in times] for one in at]
        if len(times) < self._least:
            few = "taken together" if len(metrics) > 1 else "too few to give an error"
            return Missing(f"{' and '.join(metrics)}: {count_of(len(times))}, {few}", WATCH_LONGER)
        return Moments(times, self._stands(times), dict(zip(metrics, columns, strict=True)))

    def _stands(self, times: Sequence[float]) -> list[float]:
        key = (len(times), times[0], times[-1])
        if key not in self._weights:
            self._weights[key] = weights(times)
        return self._weights[key]

    def increase_of(self, metric: str, **only: str) -> float | Missing:
        """Return by how much a counter grew within the segment."""
        flow = self.counter(metric, **only)
        return flow if isinstance(flow, Missing) else self.whole(flow)

    def whole(self, flow: Flow) -> float:
        """Return what a flow grew by within the segment."""
        return flow.grown((max(flow.start_s, self.segment.start_s), min(flow.end_s, self.segment.end_s)))[0]

    def setting(self, metric: str) -> float | Missing:
        """Return a configured value: the newest before the segment's end, however long ago it was said."""
        line = metric_of(metric)
        # What is said at the very end is the next segment's.
        ends = nextafter(self.segment.end_s, -inf)
        found = [self.store.latest(metric, labels, ends) for labels in self.keys(metric)]
        known = [value for value in found if value is not None]
        if not known:
            return self.absent(metric)
        return sum(known) / (len(known) if line and line.unit == "ratio" else 1)

    def observed(self, metric: str) -> Series | Missing:
        """Return times and values of an observation (one per finished request), all labels, in time order."""
        slices = list(self.slices(metric).values())
        if not slices:
            return self.absent(metric)
        if len(slices) == 1:
            return slices[0]
        pairs = sorted((t, v) for times, values in slices for t, v in zip(times, values, strict=True))
        return [t for t, _ in pairs], [v for _, v in pairs]

    def source(self, flow: Flow) -> str:
        """Say where a number read from ``flow`` comes from, with its gaps and resets."""
        times = flow.parts[0].times
        key = (len(times), times[0], times[-1])
        if key not in self._gaps:
            self._gaps[key] = gap_note(times)
        note = self._gaps[key]
        if flow.resets:
            note += f"; {flow.resets} counter reset{'s' if flow.resets > 1 else ''} survived"
        return "measured" + note

    def absent(self, metric: str) -> Missing:
        """Say that no source reports ``metric`` (or not in this segment), and what would."""
        if self.keys(metric):
            return Missing(f"no sample of {metric} in this segment", WATCH_LONGER)
        line = metric_of(metric)
        what = f" ({line.help.rstrip('.')})" if line else ""
        stem = metric.removesuffix(".sum").removesuffix(".count")
        return Missing(f"no source reports {metric}{what}", remedy(stem, self.store))


def replicas(samples: Samples, metrics: Iterable[str]) -> list[str]:
    """Return the replicas that tell any of ``metrics``, sorted."""
    found = (pair for metric in metrics for labels in samples.keys(metric) for pair in labels)
    return sorted({value for name, value in found if name == REPLICA})


def _merged(slices: Sequence[Series], average: bool) -> Series:
    """Return label sets that were sampled at different times as one series; each holds until it speaks again."""
    latest: dict[int, float] = {}
    times: list[float] = []
    values: list[float] = []
    ends = [series[0][-1] for series in slices]
    events = sorted((t, index, v) for index, series in enumerate(slices) for t, v in zip(*series, strict=True))
    for position, (t, index, value) in enumerate(events):
        latest[index] = value
        if position + 1 < len(events) and events[position + 1][0] == t:
            continue
        known = [value for index, value in latest.items() if t <= ends[index]]
        if average or len(known) == len(slices):
            times.append(t)
            values.append(sum(known) / len(known) if average else sum(known))
    return times, values


def count_of(samples: int) -> str:
    """Word how many samples there are."""
    return f"{samples} sample{'' if samples == 1 else 's'} in this segment"
