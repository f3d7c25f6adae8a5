"""A screen beside the overview: the target, the verdict in one line, its panels, and the bar of all screens."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.screen import Screen
from textual.widgets import Footer

from kvscope.tui.palette import BRIGHT, FAINT, FIRST, paint
from kvscope.tui.panels._base import Panel
from kvscope.tui.panels._chart import ChartPanel
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.panels.target import TargetPanel
from kvscope.tui.panels.verdict import VerdictPanel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import View


class BoardChart(ChartPanel):
    """A chart that belongs to one screen; its id is its class's name."""

    ORDER = 102
    SLOT = "page"

    @classmethod
    def name_of(cls) -> str:
        return cls.__name__.lower()


class Bar(Canvas):
    """Every screen with the key that opens it; the open one is bright."""

    def __init__(self, chosen: str) -> None:
        super().__init__(id="screens")
        self.chosen = chosen

    def draw(self, width: int, height: int) -> list[Line]:
        from kvscope.tui.screens import discover

        row, x = Line(width), 1
        short = width < 110
        for key, title, name in (("Esc", "Overview", ""), *((one.KEY, one.TITLE, one.name_of()) for one in discover())):
            here = name == self.chosen
            letter = short and title.startswith(key)
            at = x if letter else x + len(key) + 1
            row.put(at, title, paint(BRIGHT if here else FAINT, bold=here))
            row.put(x, key, paint(FIRST, bold=True))
            x = at + len(title) + 2
        return [row]


class Board(Screen[None]):
    """A file of this folder with one of these in it is a screen: on its key, in the bar, in the palette."""

    TITLE: ClassVar[str]
    KEY: ClassVar[str]
    ORDER: ClassVar[int]
    HELP: ClassVar[str] = ""
    TABLE: ClassVar[str] = ""
    """Title of the table, where there is one."""
    PANELS: ClassVar[tuple[type[Panel], ...]]
    """Beside each other; a table stands beneath them in full width."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Overview", id="back")]

    @classmethod
    def name_of(cls) -> str:
        """The screen's name: its file's name."""
        return cls.__module__.rpartition(".")[2]

    def __init__(self) -> None:
        super().__init__(classes="board")
        self.cursor_s: float | None = None
        self.view: View | None = None

    def compose(self) -> ComposeResult:
        above = [panel() for panel in self.PANELS if not issubclass(panel, TablePanel)]
        with Vertical(id="board"):
            yield TargetPanel()
            yield VerdictPanel()
            yield Bar(self.name_of())
            with Container(id="board-body"):
                yield from above
            yield from (panel() for panel in self.PANELS if issubclass(panel, TablePanel))
            yield Footer(compact=True)

    def on_mount(self) -> None:
        for facts in self.query(FactsPanel):
            facts.border_title = f"{self.TITLE} in numbers"
        for table in self.query(TablePanel):
            table.border_title = self.TABLE
        for panel in self.query(Panel):
            if panel.can_focus:
                panel.focus()
        self.on_resize()

    def on_resize(self) -> None:
        """Fewer columns where there is no room for three; then everything is drawn again."""
        width, body = self.app.size.width, self.query_one("#board-body", Container)
        count = len(body.query(Panel))
        columns = max(min(count, 3 if width >= 120 else 2), 1)
        body.styles.grid_size_columns = columns
        body.styles.height = "2fr" if count > 2 and columns == 2 else "1fr"
        for facts in self.query(FactsPanel):
            facts.styles.row_span = 2 if count == 3 and columns == 2 else 1
        alone = count == 1
        body.styles.height = 6 if alone else body.styles.height
        self.query_one(Footer).show_command_palette = width >= 120
        self.call_after_refresh(self.refill)

    def refill(self) -> None:
        """Show the last view again at another size."""
        for panel in self.query(Panel):
            panel.forget()
        if self.view is not None:
            self.receive(self.view)

    def receive(self, view: View) -> None:
        """Hand every panel the new view; one made for another screen is passed over."""
        if view.page is None or view.page.name != self.name_of():
            return
        self.view = view
        for panel in self.query(Panel):
            panel.receive(view)

    def on_panel_cursor_moved(self, event: Panel.CursorMoved) -> None:
        """One reading cursor for all charts of the screen."""
        event.stop()
        if self.view is None:
            return
        start, end = self.view.window
        at = end if self.cursor_s is None else self.cursor_s
        self.cursor_s = (
            None if event.columns is None else min(max(at + event.columns * (end - start) / 120, start), end)
        )
        for panel in self.query(Panel):
            panel.point(self.cursor_s)

    def action_back(self) -> None:
        """First let go of the reading cursor, then back to the overview."""
        if self.cursor_s is not None:
            self.cursor_s = None
            for panel in self.query(Panel):
                panel.point(None)
            return
        self.app.action_close_board()  # type: ignore[attr-defined]
