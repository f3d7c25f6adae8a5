"""Lines over time for the charts: every series is binned once, as its samples arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nextafter

from kvscope.signals.reading import Missing, Reading
from kvscope.store import Segment, Store
from kvscope.view import HeatMap, Trend
from probes.sample import Labels

BINS = 120
"""Points across a chart's time axis."""
KEEP_BINS = 480
"""Older bins are dropped when there are more than this."""
WINDOWS_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0)
BY_ITSELF = (1, 5)
"""Indexes of the shortest and the longest window chosen without being asked for; a short one would never rest."""

DECODE, STEP = "time.decode", ("time.step", "time.prefill")
"""Decode time, and the two counters it follows from where an engine does not report it."""

Told = Callable[[str], Reading | Missing]
"""Computes a signal by name, over the baseline or over now."""


@dataclass(frozen=True, slots=True)
class Line:
    """How a trend is read: a gauge's mean, a counter's rate, or one counter over another, per bin."""

    name: str
    label: str
    unit: str
    metric: str
    kind: str
    per: str = ""
    target: str = ""
    signals: tuple[str, ...] = ()
    was: bool = True
    """The first of ``signals`` is this very quantity, so its baseline is drawn."""


_LINES = (
    Line("throughput", "throughput", "1/s", "tokens.generated", "rate", signals=("generation_tokens_per_s",)),
    Line("kv_memory", "KV memory", "B", "kv.resident_bytes", "mean", signals=("kv_resident_bytes",)),
    Line("kv_usage", "KV usage", "ratio", "kv.usage_ratio", "mean", signals=("kv_usage_ratio",)),
    Line(
        "sparse_hit_rate",
        "entries read",
        "ratio",
        "sparse.entries_read",
        "share",
        per="sparse.entries_total",
        target="kept_share_target",
        signals=("sparse_hit_rate", "hit_rate_over_target"),
    ),
    Line("hot_reads", "hot", "1/s", "tier.hot_accesses", "rate", signals=("hot_access_share",), was=False),
    Line("cold_reads", "cold", "1/s", "tier.cold_accesses", "rate", signals=("tier_switches_per_token",), was=False),
    Line("running", "running", "requests", "sched.running", "mean", signals=("running_requests",)),
    Line("waiting", "waiting", "requests", "sched.waiting", "mean", signals=("waiting_requests",)),
    Line("preemptions", "preemptions", "1/s", "sched.preemptions", "rate", signals=("preemptions_per_s",)),
    Line("index_share", "index", "ratio", "sparse.index_time", "share", per="time.decode", signals=("index_share",)),
    Line(
        "gather_share",
        "gather",
        "ratio",
        "time.gather",
        "share",
        per="time.decode",
        signals=("gather_share", "access_share"),
    ),
    Line("host_share", "host", "ratio", "time.host", "share", per="time.decode", signals=("host_share",)),
    Line(
        "prefix_hit_rate",
        "prefix hits",
        "ratio",
        "prefix.hits",
        "share",
        per="prefix.queries",
        signals=("prefix_hit_rate",),
    ),
    Line(
        "right_tokens",
        "right tokens",
        "ratio",
        "quality.tokens_right",
        "share",
        per="quality.tokens_checked",
        signals=("right_token_share",),
    ),
    Line("promotions", "promotions", "1/s", "tier.promotions", "rate"),
    Line("demotions", "demotions", "1/s", "tier.demotions", "rate"),
    Line("transfer_share", "tier move", "ratio", "tier.transfer_time", "share", per="time.decode"),
    Line("decompress_share", "decompress", "ratio", "decompress.time", "share", per="time.decode"),
    Line("kv_assumed", "assumed", "B", "kv.assumed_bytes", "mean"),
    Line("kv_reserved", "pool", "B", "kv.reserved_bytes", "mean"),
    Line("bytes_measured", "measured", "B", "kv.bytes_per_token_measured", "mean"),
    Line("bytes_assumed", "assumed", "B", "kv.bytes_per_token_assumed", "mean"),
    Line("host_cpu", "all cores", "ratio", "host.cpu_util", "mean"),
    Line("gpu_util", "GPU busy", "ratio", "gpu.util", "mean"),
    Line("gpu_memory", "GPU memory interface", "ratio", "gpu.mem_bw_util", "mean"),
)
LINES = {line.name: line for line in _LINES}


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


class Charts:
    """All lines and the layer map of one time axis; rebuilt from the store when the axis changes its step."""

    def __init__(self) -> None:
        self.bin_s = 0.0
        self.window = (0.0, 1.0)
        self.ghost_s: tuple[float, float, float] | None = None
        """Start and end of the baseline and how far its points move to lie under the current segment."""
        self._tracks: dict[tuple[str, int], Track] = {}

    def read(
        self,
        store: Store,
        window_s: float,
        lines: tuple[str, ...],
        layers: bool = True,
        end_s: float | None = None,
    ) -> None:
        """Move the axis to ``end_s``, by default the newest sample, and take in what is new of ``lines``."""
        span = store.span
        if span is None:
            return
        bin_s = window_s / BINS
        if bin_s != self.bin_s:
            self.bin_s = bin_s
            self._tracks.clear()
        end = (int((span[1] if end_s is None else end_s) // bin_s) + 1) * bin_s
        self.window = (end - window_s, end)
        for line in (LINES[name] for name in lines):
            for metric, counter in _metrics(line):
                self._track(metric, counter, line.unit == "ratio" and not counter).read(store, self._first_s)
        if layers:
            self._track("kv.bytes_per_layer", False, step=2).read(store, self.window[0])

    @property
    def _first_s(self) -> float:
        return min(self.window[0], self.ghost_s[0]) if self.ghost_s else self.window[0]

    def lay_under(self, baseline: Segment | None, current: Segment | None) -> None:
        """From the next reading on, lay the baseline's curve under the current segment; None lays nothing."""
        both = baseline is not None and current is not None
        self.ghost_s = (baseline.start_s, baseline.end_s, current.start_s - baseline.start_s) if both else None  # type: ignore[union-attr]

    def _track(self, metric: str, counter: bool, average: bool = False, step: int = 1) -> Track:
        key = (metric, step)
        if key not in self._tracks:
            self._tracks[key] = Track(metric, self.bin_s * step, counter, average)
        return self._tracks[key]

    def trends(self, now: Told, baseline: Told, lines: tuple[str, ...]) -> dict[str, Trend]:
        """Every line that has a point, and a Missing where nobody reports its metric."""
        return {name: self._trend(LINES[name], now, baseline) for name in lines}

    def _trend(self, line: Line, now: Told, baseline: Told) -> Trend:
        target = now(line.target) if line.target else None
        was = (
            baseline(line.signals[0])
            if line.signals and (line.kind != "rate" or line.unit != "1/s" or line.name == "throughput")
            else None
        )
        return Trend(
            line.name,
            line.label,
            line.unit,
            self._points(line, self.window),
            target.value if isinstance(target, Reading) else None,
            was.value if isinstance(was, Reading) else None,
            line.signals,
            self.bin_s,
            ghost=self._ghost(line),
        )

    def _ghost(self, line: Line) -> tuple[tuple[float, float], ...]:
        if self.ghost_s is None:
            return ()
        start, end, shift = self.ghost_s
        points = self._points(line, (start, min(end, self.window[1] - shift)))
        return () if isinstance(points, Missing) else tuple((t + shift, value) for t, value in points)

    def _points(self, line: Line, window: tuple[float, float]) -> tuple[tuple[float, float], ...] | Missing:
        for metric, counter in _metrics(line)[:2]:
            if not self._track(metric, counter).lanes and not (metric == DECODE and self._decode_is_told()):
                return Missing(f"no source reports {metric}", "a probe or an engine flag that reports it")
        first, last = (round(edge / self.bin_s) for edge in window)
        found = ((index, self._value(line, index)) for index in range(first, last))
        return tuple(((index + 0.5) * self.bin_s, value) for index, value in found if value is not None)

    def _value(self, line: Line, index: int) -> float | None:
        top = self._track(line.metric, line.kind != "mean")
        if not line.per:
            return top.value(index)
        return _share(top.increase(index), self._grown(line.per, index))

    def _grown(self, metric: str, index: int) -> float | None:
        """A counter's increase within a bin; decode time is what prefill leaves of a step where nobody reports it."""
        if metric != DECODE or self._track(DECODE, True).lanes:
            return self._track(metric, True).increase(index)
        step, prefill = (self._track(name, True).increase(index) for name in STEP)
        return step - prefill if step is not None and prefill is not None else None

    def _decode_is_told(self) -> bool:
        return all(self._track(name, True).lanes for name in STEP)

    def layers(self) -> HeatMap:
        """Resident KV bytes per layer, two bins of the lines to a column."""
        track = self._track("kv.bytes_per_layer", False, step=2)
        label = "KV bytes per layer"
        lanes = sorted(((int(dict(labels).get("layer", -1)), lane) for labels, lane in track.lanes.items()), key=_first)
        if not lanes:
            return HeatMap(
                label, "B", (), Missing("no source reports kv.bytes_per_layer", "per-layer probes in the engine")
            )
        first, last = (int(edge // track.bin_s) for edge in self.window)
        columns = range(first, last + 1)
        rows = tuple(
            tuple(lane.bins[index][0] / lane.bins[index][1] if index in lane.bins else None for index in columns)
            for _, lane in lanes
        )
        return HeatMap(label, "B", tuple((index + 0.5) * track.bin_s for index in columns), rows)


def window_for(needed_s: float, zoom: int = 0) -> float:
    """The window that holds ``needed_s``, ``zoom`` steps longer or shorter."""
    fits = next((at for at, size in enumerate(WINDOWS_S) if size >= needed_s), len(WINDOWS_S) - 1)
    by_itself = min(max(fits, BY_ITSELF[0]), BY_ITSELF[1])
    return WINDOWS_S[min(max(by_itself + zoom, 0), len(WINDOWS_S) - 1)]


def _metrics(line: Line) -> tuple[tuple[str, bool], ...]:
    """The metrics a line reads, each with whether it is a counter; beside decode time those it follows from."""
    own = ((line.metric, line.kind != "mean"), *(((line.per, True),) if line.per else ()))
    return (*own, *((name, True) for name in STEP)) if line.per == DECODE else own


def _share(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def _first(pair: tuple[int, object]) -> int:
    return pair[0]
