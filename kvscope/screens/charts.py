"""Signals as lines over time, layers and latencies as maps: all on one time axis, bins that are over read once."""

from __future__ import annotations

import math
from collections.abc import Callable

from kvscope import signals
from kvscope.signals.algebra import gauge
from kvscope.signals.by_cell import cells_of
from kvscope.signals.evaluate import buckets
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import Cell, Samples
from kvscope.store import Segment, Store
from kvscope.view import HeatMap, Trend

BINS = 120
"""Points across a chart's time axis."""
WINDOWS_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0)
BY_ITSELF = (1, 5)
"""Indexes of the shortest and the longest window chosen without being asked for; a short one would never rest."""
TARGETS = {"sparse_hit_rate": "kept_share_target"}
"""Signal → the one that says what was asked for, drawn as a level."""
COLUMNS = 60
"""Columns of a map: two bins of a line each."""
_LEAP = 4
"""Bins by which the axis moves on at once: between two leaps only its newest cells change."""
_OWN_BUCKETS_S = tuple(0.001 * 2**power for power in range(18))
"""For engines that tell each request: from a millisecond to two minutes."""

Told = Callable[[str], Reading | Missing]


class Charts:
    """The lines and maps of one time axis; begun anew when the axis changes its step."""

    def __init__(self) -> None:
        self.bin_s = 0.0
        self.window = (0.0, 1.0)
        self.ghost_s: tuple[float, float, float] | None = None
        """Start and end of the baseline and how far its points move to lie under the current segment."""
        self._lines: dict[tuple[str, str], signals.Line] = {}
        self._counts: dict[int, dict[float, float]] = {}
        self._layers: tuple[object, HeatMap] | None = None
        self._latencies: tuple[object, HeatMap] | None = None

    def move(self, store: Store, window_s: float, end_s: float | None = None) -> None:
        """Move the axis to ``end_s``, by default the newest sample."""
        span = store.span
        if span is None:
            return
        bin_s = window_s / BINS
        if bin_s != self.bin_s:
            self.bin_s = bin_s
            self._lines.clear()
            self._counts.clear()
        leap = _LEAP * bin_s
        end = (int((span[1] if end_s is None else end_s) // leap) + 1) * leap
        self.window = (end - window_s, end)

    def lay_under(self, baseline: Segment | None, current: Segment | None) -> None:
        """From the next reading on, lay the baseline's curve under the current segment; None lays nothing."""
        if baseline is None or current is None:
            self.ghost_s = None
        else:
            self.ghost_s = (baseline.start_s, baseline.end_s, current.start_s - baseline.start_s)

    def trend(self, name: str, store: Store, now: Told, was: Told, whole: bool = False) -> Trend:
        """A signal's line, with its mean over the baseline; Missing where nobody reports what it needs.

        ``whole``: nothing more comes, and ``now`` reads all of the segment.
        """
        signal = signals.find(name)
        line = self._line(name, self.bin_s)
        told = now(name) if whole else None
        target, base = now(TARGETS[name]) if name in TARGETS else None, was(name)
        return Trend(
            name,
            signal.label,
            signal.unit,
            line.points(store, *self.window) if self.bin_s else (),
            target.value if isinstance(target, Reading) else None,
            base.value if isinstance(base, Reading) else None,
            (name,),
            self.bin_s,
            told=told.value if isinstance(told, Reading) else None,
            ghost=self._ghost(line, store),
        )

    def _line(self, name: str, bin_s: float, cell: Cell | None = None) -> signals.Line:
        key = (name, cell.value if cell else "")
        if key not in self._lines:
            self._lines[key] = signals.Line(gauge(name) if cell else name, bin_s or 1.0, cell)
        return self._lines[key]

    def _ghost(self, line: signals.Line, store: Store) -> tuple[tuple[float, float], ...]:
        if self.ghost_s is None:
            return ()
        start, end, shift = self.ghost_s
        points = line.points(store, start, min(end, self.window[1] - shift))
        return () if isinstance(points, Missing) else tuple((t + shift, value) for t, value in points)

    def layers(self, store: Store) -> HeatMap:
        """Resident KV bytes per layer."""
        metric, label, times = "kv.bytes_per_layer", "KV bytes per layer", self._columns()
        over = (times, store.span and int(store.span[1] // (self.bin_s * BINS / COLUMNS or 1.0)))
        if self._layers is not None and self._layers[0] == over:
            return self._layers[1]  # read anew when a column is over: what 64 layers cost is half of a tick
        found = cells_of(Samples(store, Segment("", *self.window)), (metric,), "layer") if self.bin_s else []
        if not found:
            return HeatMap(label, "B", (), Missing(f"no source reports {metric}", "per-layer probes in the engine"))
        rows = []
        for cell in found:
            points = self._line(metric, self.bin_s * BINS / COLUMNS, cell).points(store, *self.window)
            at = {} if isinstance(points, Missing) else dict(points)
            rows.append(tuple(at.get(time_s) for time_s in times))
        drawn = HeatMap(label, "B", times, tuple(rows), tuple(cell.value for cell in found))
        self._layers = (over, drawn)
        return drawn

    def latencies(self, store: Store, metric: str) -> HeatMap:
        """How many requests a latency came to, by bucket over time: the largest latencies above."""
        label, step = "requests", self.bin_s * BINS / COLUMNS
        times = self._columns()
        counts = [self._counted(store, metric, int(time_s // step), step) for time_s in times]
        if self._latencies is not None and self._latencies[0] == (times, counts):
            return self._latencies[1]
        bounds = sorted({bound for one in counts for bound in one}, reverse=True)
        if not bounds:
            return HeatMap(label, "", (), Missing(f"no source reports {metric}"))
        used = [at for at, bound in enumerate(bounds) if any(one.get(bound) for one in counts)]
        shown = bounds[used[0] : used[-1] + 1] if used else bounds
        rows = tuple(tuple(one.get(bound) if one else None for one in counts) for bound in shown)
        drawn = HeatMap(label, "", times, rows, tuple(_bound(bound) for bound in shown))
        self._latencies = ((times, counts), drawn)
        return drawn

    def _columns(self) -> tuple[float, ...]:
        step = self.bin_s * BINS / COLUMNS
        first, last = (math.floor(edge / step + 1e-9) for edge in self.window) if step else (0, 0)
        return tuple((index + 0.5) * step for index in range(first, last))

    def _counted(self, store: Store, metric: str, index: int, step: float) -> dict[float, float]:
        """Bound → requests at or below it and above the next; a column that is over is counted once."""
        if index in self._counts:
            return self._counts[index]
        samples = Samples(store, Segment("", index * step, (index + 1) * step), drawn=True)
        told = buckets(metric, samples)
        if isinstance(told, Missing) or not told:
            pairs = samples.observed(metric)
            values = () if isinstance(pairs, Missing) else pairs[1]
            told = {bound: float(sum(value <= bound for value in values)) for bound in _OWN_BUCKETS_S if values}
        below, found = 0.0, {}
        for bound, count in told.items():
            found[bound], below = max(count - below, 0.0), count
        if store.span and (index + 2) * step < store.span[1]:
            self._counts[index] = found
        return found


def _bound(bound: float) -> str:
    if math.isinf(bound):
        return "more"
    return f"{bound:g}s" if bound >= 1 else f"{bound * 1000:.0f}ms"


def window_for(needed_s: float, zoom: int = 0) -> float:
    """The window that holds ``needed_s``, ``zoom`` steps longer or shorter."""
    fits = next((at for at, size in enumerate(WINDOWS_S) if size >= needed_s), len(WINDOWS_S) - 1)
    by_itself = min(max(fits, BY_ITSELF[0]), BY_ITSELF[1])
    return WINDOWS_S[min(max(by_itself + zoom, 0), len(WINDOWS_S) - 1)]
