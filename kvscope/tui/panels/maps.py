"""Maps: KV bytes of every layer, or how many requests each latency came to, over time."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.format import duration, quantity
from kvscope.signals.reading import Missing
from kvscope.tui.palette import BRIGHT, DIM, FAINT, LINE, RAISED, RAMP_STEPS, TEXT, paint, ramp
from kvscope.tui.panels.panel import CURSOR_KEYS, Panel, Slot
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.time_axis import TimeAxis, notice
from kvscope.view import HeatMap as Cells
from kvscope.view import Span, View

_LABELS = 5
_SHADES = " ░▒▓█"


class HeatMap(Canvas):
    """Draws Cells; the scale starts at zero and its top, like an axis, moves only when it must."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cells: Cells | None = None
        self.window = (0.0, 1.0)
        self.spans: tuple[Span, ...] = ()
        self.cursor_s: float | None = None
        self.cursor_band = 0
        self.shades = False
        self.ended = False
        self._high = 0.0

    def show(
        self, cells: Cells | None, window: tuple[float, float], spans: tuple[Span, ...], ended: bool = False
    ) -> None:
        """Draw ``cells``, repainting what differs."""
        shown, self.ended = (self.cells, self.window, self.spans, self.ended), ended
        self.cells, self.window, self.spans = cells, window, spans
        if shown != (cells, window, spans, ended) or not self._fits(*self.size):
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        """Scale, cells and time axis; a sentence instead where layers are unknown."""
        rows = [Line(width) for _ in range(height)]
        cells = self.cells
        if cells is None or isinstance(cells.rows, Missing) or not cells.rows or height < 4:
            notice(rows, cells.rows if cells is not None and isinstance(cells.rows, Missing) else None)
            return rows
        axis = TimeAxis(self.window, _LABELS + 1, width - _LABELS - 1)
        columns = self._columns(axis, cells)
        bands = self.bands(len(cells.rows), height - 2)
        table = [_row([cells.rows[layer] for layer in band], columns) for band in bands]
        self._fit(table)
        per_band = max(((height - 2) * self._halves) // len(bands), 1)
        self._paint(rows, table, per_band, axis)
        self._labels(rows, bands, per_band)
        axis.draw_spans(rows[-1:], self.spans, 0, 1)
        axis.draw_times(rows[-1], ended=self.ended)
        self._legend(rows[0], table, bands, axis)
        return rows

    @property
    def _halves(self) -> int:
        return 1 if self.shades else 2

    def bands(self, layers: int, rows: int) -> list[range]:
        """Layers that share one drawn row: one each while they fit, neighbours together when they do not."""
        count = min(max(rows * self._halves, 1), layers)
        return [range(index * layers // count, (index + 1) * layers // count) for index in range(count)]

    def _columns(self, axis: TimeAxis, cells: Cells) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(axis.width)]
        for index, time_s in enumerate(cells.times):
            at = axis.column(time_s) - axis.left
            if 0 <= at < axis.width:
                found[at].append(index)
        step = (cells.times[1] - cells.times[0]) / (2 * axis.dot_s) if len(cells.times) > 1 else 1
        last: list[int] = []
        age = 0.0
        for at, here in enumerate(found):
            if here:
                last, age = here, 0.0
            else:
                age += 1
                found[at] = last if age < step + 1 else []
        return found

    def _fit(self, table: list[list[float | None]]) -> None:
        high = max((value for row in table for value in row if value is not None), default=0.0)
        if high > self._high or high < self._high * 0.5:
            self._high = high * 1.05

    def _level(self, value: float | None) -> int | None:
        if value is None or self._high <= 0:
            return None
        return min(int(value / self._high * RAMP_STEPS), RAMP_STEPS - 1)

    def _paint(self, rows: list[Line], table: list[list[float | None]], per_band: int, axis: TimeAxis) -> None:
        cursor = axis.column(self.cursor_s) - axis.left if self.cursor_s is not None else -1
        total = len(table) * per_band
        for y in range(-(-total // self._halves)):
            row = rows[y + 1]
            first = y * self._halves
            second = min(first + self._halves - 1, total - 1)
            upper, lower = table[first // per_band], table[second // per_band]
            blank = self._halves == 2 and first + 1 >= total
            for x in range(axis.width):
                if x == cursor:
                    row.put(axis.left + x, "│", paint(BRIGHT, RAISED))
                else:
                    self._cell(row, axis.left + x, self._level(upper[x]), None if blank else self._level(lower[x]))

    def _cell(self, row: Line, x: int, upper: int | None, lower: int | None) -> None:
        if self.shades:
            if upper is not None:
                row.put(x, _SHADES[min(upper * len(_SHADES) // RAMP_STEPS, 4)], paint(TEXT))
            return
        if upper is None and lower is None:
            row.put(x, " ", paint())
        elif upper == lower and upper is not None:
            row.put(x, "█", paint(ramp(upper)))
        elif upper is None:
            row.put(x, "▄", paint(ramp(lower or 0)))
        elif lower is None:
            row.put(x, "▀", paint(ramp(upper)))
        else:
            row.put(x, "▀", paint(ramp(upper), ramp(lower)))

    def _labels(self, rows: list[Line], bands: list[range], per_band: int) -> None:
        every = max(-(-self._halves * 2 // per_band), 1)
        for index, band in enumerate(bands):
            y = 1 + index * per_band // self._halves
            chosen = self.cursor_s is not None and index == self.cursor_band
            if index % every == 0 or chosen:
                rows[y].put_right(
                    _LABELS, self._row_name(band.start), paint(BRIGHT, bold=True) if chosen else paint(FAINT)
                )
        for row in rows[1:-1]:
            row.put(_LABELS, "│", paint(LINE))

    def _row_name(self, row: int) -> str:
        names = self.cells.names if self.cells else ()
        return names[row] if row < len(names) else str(row)

    def _legend(self, row: Line, table: list[list[float | None]], bands: list[range], axis: TimeAxis) -> None:
        unit = self.cells.unit if self.cells else ""
        x = 0
        if self.cursor_s is None:
            row.put(x, "0 ", paint(DIM))
            for step in range(12):
                level = step * RAMP_STEPS // 12
                char = _SHADES[min(step * 5 // 12, 4)] if self.shades else "█"
                row.put(x + 2 + step, char, paint(TEXT if self.shades else ramp(level)))
            row.put(x + 15, quantity(self._high, unit), paint(DIM))
            most = max(len(band) for band in bands)
            if most > 1 and len(row.chars) > 42:
                row.put_right(len(row.chars), f"rows: mean of ≤ {most}", paint(FAINT))
            return
        band = bands[min(self.cursor_band, len(bands) - 1)]
        column = min(max(axis.column(self.cursor_s) - axis.left, 0), axis.width - 1)
        value = table[min(self.cursor_band, len(bands) - 1)][column]
        first, last = self._row_name(band.start), self._row_name(band.stop - 1)
        kind = "layer" if self.cells and self.cells.unit == "B" else "≤"
        name = f"{kind} {first}" if len(band) == 1 else f"{kind} {first} to {last}"
        row.put(x, f"{name}  −{duration(axis.end_s - self.cursor_s)}  ", paint(DIM))
        shown = quantity(value, unit) if value is not None else "no sample"
        row.put(x + len(name) + 6 + len(duration(axis.end_s - self.cursor_s)), shown, paint(BRIGHT, bold=True))


def _row(layers: list[tuple[float | None, ...]], columns: list[list[int]]) -> list[float | None]:
    """One drawn row: the mean over its layers and the samples of each column."""
    if len(layers) == 1:
        only = layers[0]
        return [only[at[0]] if len(at) == 1 else _mean([only[c] for c in at]) for at in columns]
    return [_mean([layer[c] for layer in layers for c in at]) for at in columns]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class MapPanel(Panel, can_focus=True):
    """Shows the map that ``field`` of a view holds."""

    TITLE = "Map"
    READS = ("layers", "latencies", "segments", "window", "ended")
    HELP = "Bytes of each layer, or requests by latency, over time; arrow keys read single cells."
    BINDINGS: ClassVar[list[BindingType]] = [
        *CURSOR_KEYS,
        Binding("up", "layer(-1)", "Layer up", show=False),
        Binding("down", "layer(1)", "Layer down", show=False),
    ]

    def __init__(self, field: str, title: str, slot: Slot = "page") -> None:
        super().__init__(field, title, slot)
        self.field = field

    def known(self, view: View) -> bool:
        """Whether anything was read for it."""
        cells = self.cells(view)
        return cells is not None and not isinstance(cells.rows, Missing) and bool(cells.rows)

    def cells(self, view: View) -> Cells | None:
        """The map of this panel in ``view``."""
        found = getattr(view, self.field)
        return found if isinstance(found, Cells) else None

    def compose(self) -> ComposeResult:
        yield HeatMap()

    def on_mount(self) -> None:
        self.query_one(HeatMap).shades = (
            self.app.console.color_system in (None, "standard") and not self.app.is_headless
        )

    def show(self, view: View) -> None:
        self.query_one(HeatMap).show(self.cells(view), view.window, view.segments, view.ended)

    def point(self, time_s: float | None) -> None:
        chart = self.query_one(HeatMap)
        chart.cursor_s = time_s
        chart.redraw()

    def action_cursor(self, columns: int) -> None:
        """Move the reading cursor in time."""
        self.move_cursor(columns)

    def action_layer(self, rows: int) -> None:
        """Move the reading cursor to another layer."""
        chart = self.query_one(HeatMap)
        if chart.cells is None or isinstance(chart.cells.rows, Missing):
            return
        if chart.cursor_s is None:
            self.move_cursor(0)
        last = len(chart.bands(len(chart.cells.rows), chart.size.height - 2)) - 1
        chart.cursor_band = min(max(chart.cursor_band + rows, 0), last)
        chart.redraw()
