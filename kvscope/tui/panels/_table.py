"""A screen's table: arrow keys move, < and > choose the column it is sorted by, ~ turns it round, Enter opens."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from kvscope.signals.reading import Missing
from kvscope.tui.format import clip
from kvscope.tui.palette import BRIGHT, DIM, NOTE, RAISED, TEXT, paint
from kvscope.tui.panels._base import Panel
from kvscope.tui.panels._columns import Cell, Columns
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.time_axis import notice
from kvscope.view import Table, View


class Cells(Canvas):
    """Draws a Table; only the rows in sight are written."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.sort, self.down, self.cursor, self.top = -1, True, 0, 0
        self._head = 0
        self.columns = Columns()

    def show(self, table: Table) -> None:
        """Draw ``table``, repainting what differs."""
        self.table = table
        self.columns.fit(table)
        self.redraw()

    @property
    def rows_in_order(self) -> tuple[tuple[Cell, ...], ...]:
        """As given until a column was chosen; unknown cells last either way."""
        rows = self.table.rows
        return () if isinstance(rows, Missing) else tuple(rows[index] for index in self._order())

    def _order(self) -> list[int]:
        rows = self.table.rows
        if isinstance(rows, Missing):
            return []
        if not 0 <= self.sort < len(self.table.columns):
            return list(range(len(rows)))
        known = [index for index, row in enumerate(rows) if row[self.sort] is not None]
        known.sort(key=lambda index: _key(rows[index][self.sort]), reverse=self.down)
        return [*known, *(index for index, row in enumerate(rows) if row[self.sort] is None)]

    @property
    def chosen(self) -> tuple[str, tuple[Cell, ...]] | None:
        """What the row under the cursor opens, and the row."""
        order = self._order()
        if isinstance(self.table.rows, Missing) or not self.table.keys or self.cursor >= len(order):
            return None
        return self.table.keys[order[self.cursor]], self.table.rows[order[self.cursor]]

    def point_at(self, x: int, y: int) -> bool:
        """The mouse was pressed there: whether it was on the row that was chosen already."""
        at = self.top + y - self._head - 1
        if y == self._head:
            edges = self.columns.edges(self.size.width)
            index = next((i for i, (start, end) in enumerate(edges) if start <= x < end), -1)
            self.down = not self.down if index == self.sort else True
            self.sort = index
        elif y > self._head and at < len(self._order()):
            again, self.cursor = at == self.cursor, at
            self.redraw()
            return again
        self.redraw()
        return False

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if isinstance(self.table.rows, Missing) or not self.table.rows:
            notice(rows, self.table.rows if isinstance(self.table.rows, Missing) else None)
            return rows
        told = self.table.told[: max(height - 4, 0)]
        for row, line in zip(rows, told, strict=False):
            row.put(0, clip(line, width), paint(NOTE))
        self._head = len(told)
        body = rows[len(told) :]
        edges = self.columns.edges(width)
        for index, (name, (start, end)) in enumerate(zip(self.columns.headings, edges, strict=True)):
            chosen = index == self.sort
            text = name + (("▼" if self.down else "▲") if chosen else "")
            unit = self.table.columns[index][1]
            _put(body[0], unit, start, end, text, paint(BRIGHT if chosen else DIM, bold=chosen))
        ordered = self.rows_in_order
        room = len(body) - 1
        room -= len(ordered) > room > 2
        self._follow(len(ordered), room)
        for row, values in zip(body[1 : 1 + room], ordered[self.top :], strict=False):
            self._row(row, values, edges)
        if room < len(body) - 1 and len(ordered) > room:
            body[-1].put(1, _elsewhere(self.top, len(ordered) - self.top - room), paint(DIM))
        at = 1 + self.cursor - self.top
        if self.has_focus_within and 0 < at < len(body):
            body[at].styles = [paint(BRIGHT, RAISED, bold=True)] * width
            body[at].put(0, "▸", paint(BRIGHT, RAISED, bold=True))
        return rows

    def _follow(self, count: int, room: int) -> None:
        self.cursor = min(max(self.cursor, 0), max(count - 1, 0))
        self.top = min(max(self.top, self.cursor - room + 1), self.cursor, max(count - room, 0))

    def _row(self, row: Line, values: tuple[Cell, ...], edges: list[tuple[int, int]]) -> None:
        for index, (value, (start, end)) in enumerate(zip(values, edges, strict=True)):
            unit = self.table.columns[index][1]
            style = paint(DIM if value is None else NOTE if unit == "sign" else TEXT)
            _put(row, unit, start, end, self.columns.written(index, value), style)

    @property
    def has_focus_within(self) -> bool:
        """Whether the panel around this canvas has the focus."""
        return isinstance(self.parent, Panel) and self.parent.has_focus


class TablePanel(Panel, can_focus=True):
    """Shows the page's ``WHICH`` table; Enter, or a click on the chosen row, posts what the row opens."""

    TITLE = "Table"
    ORDER = 101
    WHICH: ClassVar[str] = "table"
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
        Binding("home", "move(-9999)", "First", show=False),
        Binding("end", "move(9999)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Chosen(Message):
        """Somebody wants to open a row."""

        def __init__(self, key: str, row: tuple[Cell, ...], which: str) -> None:
            super().__init__()
            self.key, self.row, self.which = key, row, which

    def compose(self) -> ComposeResult:
        yield Cells()

    def show(self, view: View) -> None:
        cells = self.query_one(Cells)
        cells.show(getattr(view.page, self.WHICH, None) or Table())

    def action_choose(self) -> None:
        """Say what the row under the cursor opens; where rows open nothing, nothing happens."""
        chosen = self.query_one(Cells).chosen
        if chosen is not None:
            self.post_message(self.Chosen(*chosen, self.WHICH))

    def on_click(self, event: events.Click) -> None:
        """A click chooses the row, a click on the chosen row opens it; on a heading it sorts."""
        cells = self.query_one(Cells)
        offset = event.get_content_offset(cells)
        if offset is None:
            return
        if cells.point_at(offset.x, offset.y):
            self.action_choose()

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


class BesideTable(TablePanel):
    """The second table of a screen that has two."""

    ORDER = 103
    WHICH = "beside"

    @classmethod
    def name_of(cls) -> str:
        return cls.WHICH


def _put(row: Line, unit: str, start: int, end: int, text: str, style: Style) -> None:
    """Words at the left of their column, numbers at its right; nothing in a column that has no room."""
    if start == end:
        return
    if unit in ("text", "sign"):
        row.put(start, clip(text, end - start - (1 if unit == "text" else 0)), style)
    else:
        row.put_right(end - 1, clip(text, end - start - 1), style)


def _key(value: Cell) -> tuple[int, float, str]:
    if isinstance(value, str):
        return (0, float(value), "") if value.isdecimal() else (1, 0.0, value)
    return 0, value or 0.0, ""


def _elsewhere(above: int, below: int) -> str:
    """How many rows are out of sight, on either side."""
    return "  ".join(text for text, count in ((f"↑ {above}", above), (f"↓ {below} more", below)) if count)
