"""A line chart in braille dots: two dots across and four down per cell, a legend with numbers, a time axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.style import Style

from kvscope.format import Scale, clip, scale_for
from kvscope.signals.reading import Missing
from kvscope.tui.palette import BAND, BRIGHT, DIM, FAINT, LINE, NO_COLOUR, NOTE, TARGET, TEXT, over, paint
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.time_axis import TimeAxis, notice
from kvscope.view import Span, Trend

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_LABELS = 7
_FLAT = 24.0
"""What is so many times smaller than the top of an axis is less than a dot high on most charts."""
_LEGEND_ROWS = 3
"""Rows of a chart for each curve that may name itself on a row of its own."""
_Words = tuple[str, Style]


@dataclass(frozen=True, slots=True)
class _Named:
    """Names and values of curves as they go on one row, ``gap`` cells apart; ``cut``: names lost letters."""

    groups: list[list[_Words]]
    gap: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A trend and the colour it is drawn in."""

    trend: Trend
    colour: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything on one chart; the curves share a unit and an axis."""

    curves: tuple[Curve, ...] = ()
    window: tuple[float, float] = (0.0, 1.0)
    spans: tuple[Span, ...] = ()
    cursor_s: float | None = None
    onset_s: float | None = None
    past: bool = False
    """The window ends before the newest sample."""
    ended: bool = False
    """Nothing more comes."""


class LineChart(Canvas):
    """Draws a Picture. The axis grows at once and shrinks only when half of it is empty, so it does not breathe.

    It starts at zero, and is logarithmic where a curve, a level or a band's edge would else lie on its floor.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.picture = Picture()
        self._top = 0.0
        self._low = 0.0
        """Where a logarithmic axis starts; 0 for one that is not."""

    def show(self, picture: Picture) -> None:
        """Draw ``picture``, repainting what differs from the last one."""
        if picture == self.picture and self._fits(*self.size):
            return
        self.picture = picture
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        """Legend, plot and time axis; a sentence instead where there is no curve at all."""
        rows = [Line(width) for _ in range(height)]
        known = [curve for curve in self.picture.curves if not isinstance(curve.trend.points, Missing)]
        if not known or not any(curve.trend.points for curve in known):
            notice(
                rows, next((c.trend.points for c in self.picture.curves if isinstance(c.trend.points, Missing)), None)
            )
            return rows
        left, bottom = (_LABELS + 1, height - 1) if height >= 5 else (_LABELS + 1, height)
        scale = self._fit(known)
        top = self._legend(rows, width, scale)
        if bottom < 3:
            return rows
        axis = TimeAxis(self.picture.window, left, width - left)
        plot = _Plot(rows, axis, top, bottom, self._top, self._low)
        self._labels(rows, scale, top, bottom)
        axis.draw_spans(rows, self.picture.spans, top, bottom)
        self._levels(plot, known)
        for curve in known:
            plot.line(curve.trend.ghost, curve.trend.bin_s, paint(FAINT))
        for at, curve in enumerate(self.picture.curves):
            if not isinstance(curve.trend.points, Missing):
                plot.line(curve.trend.points, curve.trend.bin_s, paint(curve.colour), at + 1)
        axis.draw_names(rows, self.picture.spans, top, bottom)
        for curve in known:
            plot.band(curve)
        if self.picture.onset_s is not None:
            axis.draw_onset(rows, self.picture.onset_s, top, bottom)
        if self.picture.cursor_s is not None:
            axis.draw_cursor(rows, self.picture.cursor_s, top, bottom)
        if bottom < height:
            axis.draw_times(rows[bottom], self.picture.past, self.picture.ended)
        return rows

    def _fit(self, known: list[Curve]) -> Scale:
        values = [value for curve in known for _, value in curve.trend.points]  # type: ignore[union-attr]
        shown = [_typical(curve.trend) for curve in known]
        for trend in (curve.trend for curve in known):
            shown += [edge for edge in trend.band or () if edge]
            values += [level for level in (trend.target, trend.baseline) if level]
            values += [value for _, value in trend.ghost]
        top = max(*values, *shown)
        top = top if top > 0 else 1.0
        unit = known[0].trend.unit
        if top > self._top or top < self._top * 0.45:
            factor = scale_for(top, unit).factor
            self._top = _nice(top / factor) * factor
            if scale_for(0.5, unit).unit == "%" and top <= 1:
                self._top = min(self._top, 1.0)
        least = min((one for one in shown if one > 0), default=top)
        flat = least * (_FLAT / 2 if self._low else _FLAT) < self._top and scale_for(0.5, unit).unit != "%"
        self._low = 10.0 ** math.floor(math.log10(least / 2)) if flat else 0.0
        return scale_for(self._top, unit)

    def _labels(self, rows: list[Line], scale: Scale, top: int, bottom: int) -> None:
        marks = {top: self._top, bottom - 1: self._low}
        if bottom - top >= 5:
            middle = math.sqrt(self._top * self._low) if self._low else self._top / 2
            marks[bottom - 1 - round(((bottom - top) * 4 - 1) / 2) // 4] = middle
        if self._low and bottom - top >= 4:
            rows[bottom - 2].put_right(_LABELS, "log", paint(FAINT))
        for y in range(top, bottom):
            rows[y].put(_LABELS, "┤" if y in marks else "│", paint(LINE))
        for y, value in marks.items():
            own = scale_for(value, self.picture.curves[0].trend.unit) if self._low else scale
            fine = Scale(own.factor, own.unit, _decimals(value / own.factor))
            named = (y == top or self._low) and len(fine.text(value)) <= _LABELS
            text = fine.text(value) if named else fine.number(value)
            rows[y].put_right(_LABELS, text, paint(FAINT))

    def _levels(self, plot: _Plot, known: list[Curve]) -> None:
        for curve in known:
            if curve.trend.baseline is not None:
                plot.level(curve.trend.baseline, "╌", paint(FAINT))
            if curve.trend.target is not None:
                plot.level(curve.trend.target, "┄", paint(TARGET))

    def _legend(self, rows: list[Line], width: int, scale: Scale) -> int:
        """Write it and return how many rows it took: one a curve where one row would cut names and there is room."""
        curves = list(enumerate(self.picture.curves))
        together = self._groups(curves, width, scale)
        if len(curves) == 1 or not together.cut or len(rows) < _LEGEND_ROWS * len(curves):
            self._put_legend(rows[0], together, curves, width)
            return 1
        for row, curve in zip(rows, curves, strict=False):
            self._put_legend(row, self._groups([curve], width, scale), [curve], width)
        return len(curves)

    def _put_legend(self, row: Line, named: _Named, curves: list[tuple[int, Curve]], width: int) -> None:
        groups, gap = named.groups, named.gap
        room = width - _length(groups) - gap * (len(groups) - 1)
        for group, (_, curve) in zip(groups, curves, strict=True):
            for extra in self._levels_told(curve.trend):
                length = sum(len(text) for text, _ in extra)
                if length <= room:
                    group += extra
                    room -= length
        x = 0
        for group in groups:
            for text, style in group:
                row.put(x, text, style)
                x += len(text)
            x += gap

    def _groups(self, curves: list[tuple[int, Curve]], width: int, scale: Scale) -> _Named:
        """Name and value of every curve and the gap between; where it is narrow without padding, then without units.

        Where even that is too wide names are cut, and never a number.
        """
        for form, gap in (("roomy", 3), ("close", 2), ("bare", 1)):
            groups = [self._name_and_value(at, curve, form, scale) for at, curve in curves]
            if _length(groups) + gap * (len(groups) - 1) <= width:
                return _Named(groups, gap)
        names = [group[1][0].strip() for group in groups]
        over = _length(groups) + len(groups) - 1 - width
        while over > 0 and max(map(len, names)) > 2:
            longest = max(range(len(names)), key=lambda at: len(names[at]))
            names[longest], over = names[longest][:-1], over - 1
        cut = [
            [mark, (clip(whole.strip(), len(name)) + " ", style), *rest]
            for name, (mark, (whole, style), *rest) in zip(names, groups, strict=True)
        ]
        return _Named(cut, 1, cut=True)

    def _name_and_value(self, at: int, curve: Curve, form: str, scale: Scale) -> list[_Words]:
        trend = curve.trend
        if isinstance(trend.points, Missing) or not trend.points:
            return [("○ ", paint(FAINT)), (f"{trend.label} unknown", paint(DIM))]
        mean = trend.told if self.picture.cursor_s is None else None
        value = _at(trend.points, self.picture.cursor_s) if mean is None else mean
        own = scale_for(value, trend.unit)
        shown = {"roomy": own.text(value).rjust(9), "close": own.text(value), "bare": _short(own, value)}[form]
        shown = shown if mean is None else "⌀ " + shown.lstrip()
        mark = "◌ " if _dotted(at) else "● "
        return [(mark, paint(curve.colour)), (f"{trend.label} ", paint(DIM)), (shown, paint(BRIGHT, bold=True))]

    def _levels_told(self, trend: Trend) -> list[list[tuple[str, Style]]]:
        told: list[list[tuple[str, Style]]] = []
        if trend.target is not None:
            value = scale_for(trend.target, trend.unit).text(trend.target)
            told.append([("  ┄ ", paint(TARGET)), ("target ", paint(DIM)), (value, paint(TEXT))])
        if trend.baseline is not None:
            value = scale_for(trend.baseline, trend.unit).text(trend.baseline)
            told.append([("  ╌ ", paint(FAINT)), ("was ", paint(DIM)), (value, paint(TEXT))])
        return told


class _Plot:
    """The dots of one chart: rows ``top`` to ``bottom`` of the canvas, values 0 to ``high``.

    With a ``low`` they go from there on by their logarithm.
    """

    def __init__(self, rows: list[Line], axis: TimeAxis, top: int, bottom: int, high: float, low: float = 0.0) -> None:
        self.rows, self.axis, self.top, self.bottom, self.high, self.low = rows, axis, top, bottom, high, low
        self.height = (bottom - top) * 4
        self.masks: dict[tuple[int, int], int] = {}
        self._drawn_by: dict[tuple[int, int], int] = {}

    def _dot(self, value: float) -> int:
        part = value / self.high
        if self.low:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return round(min(max(part, 0.0), 1.0) * (self.height - 1))

    def level(self, value: float, char: str, style: Style) -> None:
        """A horizontal rule at ``value``, beneath the curves."""
        y = self.bottom - 1 - self._dot(value) // 4
        for x in range(self.axis.left, self.axis.left + self.axis.width):
            if self.rows[y].chars[x] == " ":
                self.rows[y].put(x, char, style)

    def band(self, curve: Curve) -> None:
        """Shade the values at which the check says yes, and rule its edge, which says it without colour."""
        if curve.trend.band is None:
            return
        low, high = curve.trend.band
        upper = self.top if high is None else self.bottom - 1 - self._dot(high) // 4
        lower = self.bottom - 1 if low is None else self.bottom - 1 - self._dot(low) // 4
        left, right = self.axis.left, self.axis.left + self.axis.width
        for edge, y, inward in ((low, lower, "▲ fires"), (high, upper, "▼ fires")):
            if edge is None or not self.top <= y < self.bottom:
                continue
            for x in range(left, right):
                if self.rows[y].chars[x] in " ┊╌":
                    self.rows[y].put(x, "┈", paint(NOTE))
            self._name_edge(y, inward, (y - 1, y + 1)[inward[0] == "▼"])
        for y in range(max(upper, self.top), min(lower, self.bottom - 1) + 1):
            styles = self.rows[y].styles
            styles[left:right] = [over(style, BAND) for style in styles[left:right]]

    def _name_edge(self, y: int, name: str, inside: int) -> None:
        """Write ``name`` on the edge's row, or on the one inside it, as far right as nothing else stands."""
        left, right = self.axis.left, self.axis.left + self.axis.width
        for row in (self.rows[y], self.rows[min(max(inside, self.top), self.bottom - 1)]):
            starts = range(right - len(name), left, -3)
            free = [at for at in starts if not "".join(row.chars[at : at + len(name)]).strip("┈ ")]
            if free:
                row.put(free[0], name, paint(NOTE))
                return

    def line(self, points: tuple[tuple[float, float], ...], bin_s: float, style: Style, number: int = 0) -> None:
        """Join neighbouring points; a hole in the data stays a hole. ``number``: which curve, 0 for a ghost."""
        cells: dict[tuple[int, int], int] = {}
        last = None
        for time_s, value in points:
            x, y = self.axis.dot(time_s), self._dot(value)
            joined = last is not None and time_s - last[2] <= 2.6 * bin_s
            x0, y0 = (last[0], last[1]) if joined and last is not None else (x, y)
            steps = max(abs(x - x0), abs(y - y0), 1)
            for step in range(1 if joined else steps, steps + 1):
                at_x, at_y = x0 + round((x - x0) * step / steps), y0 + round((y - y0) * step / steps)
                cell = (at_x // 2, at_y // 4)
                cells[cell] = cells.get(cell, 0) | _DOTS[at_x % 2][3 - at_y % 4]
            last = (x, y, time_s)
        self._ink(cells, style, number)

    def _ink(self, cells: dict[tuple[int, int], int], style: Style, number: int) -> None:
        """Write one curve's cells, each once, over what other curves wrote there."""
        dotted = _dotted(number - 1)
        for (x, y), mask in cells.items():
            if not 0 <= x < self.axis.width or (dotted and x % 2):
                continue
            place = column, row = self.axis.left + x, self.bottom - 1 - y
            self.masks[place] = mask = mask | self.masks.get(place, 0)
            line = self.rows[row]
            if not (column % 2 and self._drawn_by.get(place, number) not in (0, number)):
                # Two curves in one place take turns by column: neither hides the other.
                self._drawn_by[place] = number
                line.styles[column] = style
            line.chars[column] = chr(0x2800 + mask)


def _typical(trend: Trend) -> float:
    """What of a curve must be seen: where it mostly is; 0 for one that is mostly nothing."""
    if isinstance(trend.points, Missing) or not trend.points:
        return 0.0
    values = sorted(value for _, value in trend.points)
    return max(values[len(values) // 2], 0.0)


def _short(own: Scale, value: float) -> str:
    """A number with as little of its unit as tells its size."""
    unit = own.unit if own.unit in ("%", "s", "ms", "µs") or own.unit.endswith("B") else own.unit[:1]
    return own.number(value) + (unit if unit.isalpha() or unit == "%" else "")


def _length(groups: list[list[_Words]]) -> int:
    return sum(len(text) for group in groups for text, _ in group)


def _dotted(at: int) -> bool:
    """Whether the curve at that place is dotted: where there is no colour to tell it from the first."""
    return NO_COLOUR and at > 0


def _nice(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in _NICE if step * power >= value * 0.9999), 10 * power)


def _decimals(value: float) -> int:
    return 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2 if value * 10 != int(value * 10) else 1


def _at(points: tuple[tuple[float, float], ...], time_s: float | None) -> float:
    if time_s is None:
        return points[-1][1]
    return min(points, key=lambda point: abs(point[0] - time_s))[1]
