"""A screen's table: arrow keys move, < and > choose the column it is sorted by, ~ turns it round, Enter opens."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from kvscope.format import Scale, Steady, clip, quantity
from kvscope.screens import Cell
from kvscope.signals.reading import Missing
from kvscope.tui.palette import BRIGHT, DIM, NOTE, RAISED, TEXT, paint
from kvscope.tui.panels.panel import Panel
from kvscope.tui.screens.dialogs import EditScreen
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.time_axis import notice
from kvscope.view import Table, View

_WIDEST = 16
"""A column of numbers is no wider than this, however much room there is: eyes must find the next number."""
_LEAST_TEXT, _LEAST_WORD = 14, 9
"""A sentence and a word cut to less than this say nothing: the column is left out. Numbers are never cut."""
_WORDS = ("text", "sign")
_PLAIN = (*_WORDS, "time", "tokens", "entries", "requests", "")


class Columns:
    """Headings, cells and places of the columns of one table."""

    def __init__(self) -> None:
        self.headings: tuple[str, ...] = ()
        self._units: tuple[tuple[str, str], ...] = ()
        self._scales: list[Scale | None] = []
        self._natural: list[int] = []
        self._worded: set[int] = set()
        self._steady = Steady()

    def fit(self, table: Table) -> None:
        """Take in what a table now holds: the unit of a column follows its middle value."""
        if table.columns != self._units:
            self._units, self._natural = table.columns, [0] * len(table.columns)
            self._steady = Steady()
        rows = () if isinstance(table.rows, Missing) else table.rows
        cells = [[row[index] for row in rows] for index in range(len(self._units))]
        self._scales = [self._scale(index, column) for index, column in enumerate(cells)]
        self.headings = tuple(self._heading(index) for index in range(len(self._units)))
        self._worded = {i for i, column in enumerate(cells) if any(isinstance(value, str) for value in column)}
        for index, column in enumerate(cells):
            longest = max((len(text) for text in self._longest(index, column)), default=1)
            self._natural[index] = max(self._natural[index], longest, len(self.headings[index]) + 1)

    def _scale(self, index: int, column: list[Cell]) -> Scale | None:
        name, unit = self._units[index]
        known = sorted(abs(value) for value in column if isinstance(value, float | int) and value)
        if unit in _PLAIN or not known:
            return None
        return self._steady.scale(f"{index} {name}", known[len(known) // 2], unit)

    def _heading(self, index: int) -> str:
        name, scale = self._units[index][0], self._scales[index]
        return name if scale is None or not scale.unit or name.endswith(scale.unit) else f"{name} {scale.unit}"

    def _longest(self, index: int, column: list[Cell]) -> list[str]:
        """The cells that may be the longest: every text, and of numbers the ends."""
        numbers = [value for value in column if isinstance(value, float | int)]
        texts = [value for value in column if isinstance(value, str)]
        return [*texts, *(self.written(index, value) for value in ((min(numbers), max(numbers)) if numbers else ()))]

    def written(self, index: int, value: Cell) -> str:
        """A cell as it is drawn, without its unit where the heading says it."""
        if value is None:
            return "?"
        if isinstance(value, str):
            return value
        unit, scale = self._units[index][1], self._scales[index]
        if scale is not None:
            return scale.number(value)
        if unit == "time":
            return time.strftime("%H:%M:%S", time.localtime(value))
        if unit in ("tokens", "entries", "requests"):
            return f"{value:.0f}" if unit != "requests" or value == int(value) else f"{value:.1f}"
        return quantity(value, unit) if unit in ("", "text") else f"{value:g}"

    def edges(self, width: int) -> list[tuple[int, int]]:
        """Start and end of every column, both 0 for one that has no room; the last column of words takes the rest."""
        words = [index for index, (_, unit) in enumerate(self._units) if unit == "text"]
        sizes = [2 if unit == "sign" else size + 1 for size, (_, unit) in zip(self._natural, self._units, strict=True)]
        room = width - 1
        for index in reversed(range(1, len(sizes))):
            over = sum(sizes) - room
            if over > 0:
                kept = sizes[index] - over
                sizes[index] = kept if kept >= self._least(index) else 0
        sizes[:1] = [min(size, room) for size in sizes[:1]]
        self._widen(sizes, room, words)
        found, x = [], 1
        for size in sizes:
            found.append((x, x + size) if size else (0, 0))
            x += size
        return found

    def _least(self, index: int) -> int:
        """How far a column can be cut."""
        if self._units[index][1] == "text":
            return _LEAST_TEXT
        return _LEAST_WORD if index in self._worded else self._natural[index] + 1

    def _widen(self, sizes: list[int], room: int, words: list[int]) -> None:
        """Give numbers air, and the last column of words what is left."""
        shown = [index for index, size in enumerate(sizes) if size]
        each = (room - sum(sizes)) // max(len(shown), 1)
        for index in shown:
            unit = self._units[index][1]
            if unit == "text":
                sizes[index] += min(each, 2)
            elif unit != "sign":
                sizes[index] = max(min(sizes[index] + each, _WIDEST), sizes[index])
        last = next((index for index in reversed(words) if sizes[index]), None)
        if last is not None:
            sizes[last] += max(room - sum(sizes), 0)


class Cells(Canvas):
    """Draws a Table; only the rows in sight are written."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.sort, self.down, self.cursor, self.top = -1, True, 0, 0
        self.only = ""
        """Rows without this text in any cell are left out."""
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
        shown = [index for index, row in enumerate(rows) if self._admits(row)]
        if not 0 <= self.sort < len(self.table.columns):
            return shown
        known = [index for index in shown if rows[index][self.sort] is not None]
        known.sort(key=lambda index: _key(rows[index][self.sort]), reverse=self.down)
        return [*known, *(index for index in shown if rows[index][self.sort] is None)]

    def _admits(self, row: tuple[Cell, ...]) -> bool:
        text = " ".join(self.columns.written(index, value) for index, value in enumerate(row)) if self.only else ""
        return self.only.lower() in text.lower()

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
    """Shows the page's ``table``, or the one ``beside``; Enter, or a click on the chosen row, posts what it opens."""

    TITLE = "Table"
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
        Binding("home,g", "move(-9999)", "First", show=False),
        Binding("end,G", "move(9999)", "Last", show=False),
        Binding("slash", "filter", "Only rows with", show=False),
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
        cells.show(getattr(view.page, str(self.id), None) or Table())

    def action_choose(self) -> None:
        """Say what the row under the cursor opens; where rows open nothing, nothing happens."""
        chosen = self.query_one(Cells).chosen
        if chosen is not None:
            self.post_message(self.Chosen(*chosen, str(self.id)))

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

    def action_filter(self) -> None:
        """Only the rows in which a typed text stands; none typed: all."""
        cells = self.query_one(Cells)

        def typed(text: str | None) -> None:
            if text is not None:
                cells.only = text
                self.border_subtitle = f"/{text}" if text else ""
                cells.redraw()

        self.app.push_screen(EditScreen("only rows with", cells.only, "nothing shows all, "), typed)

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
