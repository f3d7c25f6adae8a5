"""A screen beside the overview: the target, the verdict in one line, its panels, and the bar of all screens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical

from kvscope.signals.reading import Missing
from kvscope.tui.palette import BRIGHT, DIM, FIRST, paint
from kvscope.tui.panels._base import Panel
from kvscope.tui.panels._chart import ChartPanel, known
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import BesideTable, TablePanel
from kvscope.tui.panels.target import TargetPanel
from kvscope.tui.panels.verdict import VerdictPanel
from kvscope.tui.screens._reading import Reading
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.key_bar import KeyBar
from kvscope.view import Table, View

if TYPE_CHECKING:
    from kvscope.tui.ordering import Ordering

_NOTICE = 7
"""Rows for saying what is unknown and what would supply it."""


class BoardChart(ChartPanel):
    """A chart that belongs to one screen; its id is its class's name."""

    ORDER = 102
    SLOT = "page"
    SPARE: ClassVar[bool] = False
    """Left out while nothing of it is known: another part of the screen says what would supply it."""

    @classmethod
    def name_of(cls) -> str:
        return cls.__name__.lower()


class Bar(Canvas):
    """Every screen with the key that opens it; the open one is bright."""

    def __init__(self, chosen: str) -> None:
        super().__init__(id="screens")
        self.chosen = chosen
        self._places: list[tuple[int, int, str]] = []

    def draw(self, width: int, height: int) -> list[Line]:
        from kvscope.tui.screens import discover

        self._places.clear()
        row, x = Line(width), 1
        boards = ((one.KEY, one.TITLE, one.name_of()) for one in discover())
        entries = (("Esc", "" if width < 90 else "Overview", ""), *boards)
        gap = 2 if width < 130 else 3
        cramped = width < 78
        for key, title, name in entries:
            here = name == self.chosen
            title = "" if cramped and not here else title
            letter = title.startswith(key)
            at = x if letter else x + len(key) + (1 if title else 0)
            row.put(at, title, paint(BRIGHT if here else DIM, bold=here))
            row.put(x, key, paint(FIRST, bold=True))
            self._places.append((x, at + len(title), name))
            x = at + len(title) + gap
        return [row]

    def on_click(self, event: events.Click) -> None:
        """A click opens the screen whose name it is on."""
        name = next((name for start, end, name in self._places if start <= event.x < end), None)
        if name is not None and name != self.chosen:
            self.app.action_board(name) if name else self.app.action_close_board()  # type: ignore[attr-defined]


class Board(Reading):
    """A file of this folder with one of these in it is a screen: on its key, in the bar, in the palette."""

    TITLE: ClassVar[str]
    KEY: ClassVar[str]
    ORDER: ClassVar[int]
    HELP: ClassVar[str] = ""
    TABLE: ClassVar[str] = ""
    """Title of the table, where there is one."""
    BESIDE: ClassVar[str] = ""
    """Title of the second table."""
    STACKED: ClassVar[bool] = False
    """On a narrow terminal the panels stand beneath each other instead of in two columns."""
    OPENS: ClassVar[bool] = False
    """Rows of the table can be opened, and Escape closes what is."""
    PANELS: ClassVar[tuple[type[Panel], ...]]
    """Beside each other; a table stands beneath them in full width."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Overview", id="back", show=False)]

    @classmethod
    def name_of(cls) -> str:
        """The screen's name: its file's name."""
        return cls.__module__.rpartition(".")[2]

    def __init__(self) -> None:
        super().__init__(classes="board")

    def compose(self) -> ComposeResult:
        above = [panel() for panel in self.PANELS if not issubclass(panel, TablePanel)]
        with Vertical(id="board"):
            yield TargetPanel()
            yield VerdictPanel()
            yield Bar(self.name_of())
            with Container(id="board-body"):
                yield from above
            with Horizontal(id="tables"):
                yield from (panel() for panel in self.PANELS if issubclass(panel, TablePanel))
            yield KeyBar()

    def on_mount(self) -> None:
        for facts in self.query(FactsPanel):
            facts.border_title = f"{self.TITLE} in numbers"
        for table in self.query(TablePanel):
            table.border_title = self.TABLE if table.WHICH == "table" else self.BESIDE
        self.take_focus()
        self.on_resize()

    def take_focus(self) -> None:
        """Focus the part that keys are for: the first table, else the last panel that takes them."""
        panels = [panel for panel in self.query(Panel) if panel.can_focus]
        tables = [panel for panel in panels if isinstance(panel, TablePanel)]
        for panel in (*panels[-1:], *tables[:1]):
            panel.focus()

    @property
    def ordering(self) -> Ordering:
        """The application, as the one that takes orders."""
        return cast("Ordering", self.app)

    def open(self, about: str) -> None:
        """From the next view on, what of this screen is opened."""
        self.ordering.order(lambda: self.ordering.session.look(f"{self.name_of()}/{about}"))

    def on_resize(self) -> None:
        """Fewer columns where there is no room for three; then everything is drawn again."""
        width, body = self.app.size.width, self.query_one("#board-body", Container)
        self.set_class(width < 120, "-narrow")
        self.query_one("#tables").display = any(issubclass(panel, TablePanel) for panel in self.PANELS)
        count = len([panel for panel in body.query(Panel) if panel.parent is body and panel.display])
        most = 4 if width >= 150 else 2 if count == 4 else 3
        columns = max(min(count, most if width >= 120 else 1 if self.STACKED else 2), 1)
        body.styles.grid_size_columns = columns
        body.styles.height = "2fr" if count > 2 and columns == 2 else "1fr"
        for facts in self.query(FactsPanel):
            facts.styles.row_span = 2 if count == 3 and columns == 2 else 1
        if count == 1 and self.query_one("#tables").display:
            body.styles.height = 6
        self.call_after_refresh(self.refill)

    def refill(self) -> None:
        """Show the last view again at another size."""
        for panel in self.query(Panel):
            panel.forget()
        if self.view is not None:
            self.receive(self.view)

    def receive(self, view: View) -> None:
        """Hand every panel the new view; one made for another screen is passed over.

        A second table takes room only while it has something to say.
        """
        if view.page is None or view.page.name != self.name_of():
            return
        self.view = view
        for table in self.query(BesideTable):
            table.display = view.page.beside is not None
        self._make_room(view)
        for panel in self.query(Panel):
            panel.receive(view)

    def _make_room(self, view: View) -> None:
        """A table takes no more rows than it has, a chart of nothing none, so that the others have them."""
        assert view.page is not None
        tables = [table for table in (view.page.table, view.page.beside) if table is not None]
        rows = max((_rows_of(table) for table in tables), default=_rows_of(Table()))
        self.query_one("#tables").styles.max_height = rows + (1 if self.has_class("-narrow") else 2)
        for chart in self.query(BoardChart):
            shown = not chart.SPARE or any(known(view, name) for curves in chart.CHARTS for name, _ in curves)
            if shown != chart.display:
                chart.display = shown
                self.on_resize()

    def action_back(self) -> None:
        """First let go of the reading cursor, then of what is opened, then back to the overview."""
        if self.cursor_s is not None:
            self.point(None)
            return
        if self.view is not None and self.view.page is not None and self.view.page.about and self.OPENS:
            self.open("")
            return
        self.app.action_close_board()  # type: ignore[attr-defined]


def _rows_of(table: Table) -> int:
    """Rows a table can fill: what it tells, its heading, its rows; or a notice with air around it."""
    return _NOTICE if isinstance(table.rows, Missing) or not table.rows else len(table.told) + 2 + len(table.rows)
