"""A screen's table: arrow keys move, < and > choose the column it is sorted by, = turns the order round."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.signals.reading import Missing
from kvscope.tui.format import clip, quantity
from kvscope.tui.palette import BRIGHT, DIM, NOTE, RAISED, TEXT, paint
from kvscope.tui.panels._base import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.time_axis import notice
from kvscope.view import Table, View

Cell = float | str | None
_NARROWEST = 6


class Cells(Canvas):
    """Draws a Table; only the rows in sight are written."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.sort, self.down, self.cursor, self.top = -1, True, 0, 0

    @property
    def rows_in_order(self) -> tuple[tuple[Cell, ...], ...]:
        """As given until a column was chosen; unknown cells last either way."""
        rows = self.table.rows
        if isinstance(rows, Missing):
            return ()
        if not 0 <= self.sort < len(self.table.columns):
            return rows
        known = [row for row in rows if row[self.sort] is not None]
        known.sort(key=lambda row: _key(row[self.sort]), reverse=self.down)
        return (*known, *(row for row in rows if row[self.sort] is None))

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if isinstance(self.table.rows, Missing) or not self.table.rows:
            notice(rows, self.table.rows if isinstance(self.table.rows, Missing) else None)
            return rows
        told = self.table.told[: max(height - 4, 0)]
        for row, line in zip(rows, told, strict=False):
            row.put(0, clip(line, width), paint(NOTE))
        body = rows[len(told) :]
        count = len(self.table.columns)
        cell = min(max((width - 1) // count, _NARROWEST + 2), 16)
        for index, (name, _) in enumerate(self.table.columns):
            chosen = index == self.sort
            text = name + (("▼" if self.down else "▲") if chosen else "")
            body[0].put_right(cell * (index + 1), text, paint(BRIGHT if chosen else DIM, bold=chosen))
        ordered = self.rows_in_order
        self._follow(len(ordered), len(body) - 1)
        for row, values in zip(body[1:], ordered[self.top :], strict=False):
            self._row(row, values, cell)
        at = 1 + self.cursor - self.top
        if self.has_focus_within and 0 < at < len(body):
            body[at].styles = [paint(BRIGHT, RAISED, bold=True)] * width
            body[at].put(0, "▸", paint(BRIGHT, RAISED, bold=True))
        return rows

    def _follow(self, count: int, room: int) -> None:
        self.cursor = min(max(self.cursor, 0), max(count - 1, 0))
        self.top = min(max(self.top, self.cursor - room + 1), self.cursor, max(count - 1, 0))

    def _row(self, row: Line, values: tuple[Cell, ...], cell: int) -> None:
        for index, (value, (_, unit)) in enumerate(zip(values, self.table.columns, strict=True)):
            text = clip(_shown(value, unit), cell - 1)
            row.put_right(cell * (index + 1), text, paint(DIM if value is None else TEXT))

    @property
    def has_focus_within(self) -> bool:
        """Whether the panel around this canvas has the focus."""
        return isinstance(self.parent, Panel) and self.parent.has_focus


class TablePanel(Panel, can_focus=True):
    TITLE = "Table"
    ORDER = 101
    SLOT = "page"
    READS = ("page",)
    HELP = "Arrow keys move, < and > choose the column it is sorted by, ~ turns the order round."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "move(-10)", "Up", show=False),
        Binding("pagedown", "move(10)", "Down", show=False),
        Binding("less_than_sign", "sort(-1)", "Sort by the column before", show=False),
        Binding("greater_than_sign", "sort(1)", "Sort by the next column", show=False),
        Binding("tilde", "turn", "Turn the order round", show=False),
    ]

    def compose(self) -> ComposeResult:
        yield Cells()

    def show(self, view: View) -> None:
        cells = self.query_one(Cells)
        cells.table = (view.page.table if view.page else None) or Table()
        cells.redraw()

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        cells = self.query_one(Cells)
        cells.cursor += rows
        cells.redraw()

    def action_sort(self, columns: int) -> None:
        """Sort by another column, going round."""
        cells = self.query_one(Cells)
        cells.sort = (max(cells.sort, -1 if columns > 0 else 0) + columns) % max(len(cells.table.columns), 1)
        cells.redraw()

    def action_turn(self) -> None:
        """Smallest first instead of largest, or back."""
        cells = self.query_one(Cells)
        cells.down = not cells.down
        cells.redraw()

    def on_focus(self) -> None:
        """The cursor shows."""
        self.query_one(Cells).redraw()

    def on_blur(self) -> None:
        """The cursor hides."""
        self.query_one(Cells).redraw()


def _key(value: Cell) -> tuple[int, float, str]:
    if isinstance(value, str):
        return (0, float(value), "") if value.isdecimal() else (1, 0.0, value)
    return 0, value or 0.0, ""


def _shown(value: Cell, unit: str) -> str:
    if value is None:
        return "?"
    if isinstance(value, str):
        return value
    if unit == "time":
        return time.strftime("%H:%M:%S", time.localtime(value))
    if unit in ("tokens", "entries", "requests"):
        return f"{value:.0f}" if unit != "requests" or value == int(value) else f"{value:.1f}"
    return quantity(value, unit)
