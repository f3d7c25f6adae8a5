"""A screen beside the overview, made from what ``kvscope.screens`` says it shows; and what all full screens share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen as TextualScreen

from kvscope import screens
from kvscope.finding import Finding
from kvscope.order import Look
from kvscope.signals.reading import Missing
from kvscope.tui.keys import digit
from kvscope.tui.palette import BRIGHT, DIM, FIRST, paint
from kvscope.tui.panels.accounting import WholesPanel
from kvscope.tui.panels.chart import ChartPanel
from kvscope.tui.panels.findings import FindingList, FindingsPanel
from kvscope.tui.panels.headlines import FactsPanel
from kvscope.tui.panels.judged import JudgedPanel
from kvscope.tui.panels.maps import MapPanel
from kvscope.tui.panels.panel import Panel
from kvscope.tui.panels.state import StatePanel
from kvscope.tui.panels.table import TablePanel
from kvscope.tui.panels.target import TargetPanel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.key_bar import KeyBar
from kvscope.view import Table, View

if TYPE_CHECKING:
    from kvscope.tui.ordering import Ordering


from collections.abc import Iterable

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip

Rendered = tuple[Region, Region, list[Strip]]


class SparingCompositor(Compositor):
    """Draws what the toolkit would.

    Where charts at opposite corners move, the toolkit asks every widget between them for all of its lines and throws
    them away: half of what a tick cost.
    """

    _changed: tuple[Region, ...] = ()

    def render_partial_update(self) -> ChopsUpdate | None:
        """What changed since the last frame."""
        self._changed = tuple(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(self, crop: Region | None = None) -> Iterable[Rendered]:
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        left = list(self._changed)
        for widget, (region, clip) in self.visible_widgets.items():  # the foremost first, and the foremost is seen
            shown = region.intersection(clip)
            here = [one for one in left if shown.overlaps(one)]
            if not here:
                continue
            rows = Region.from_union(here).intersection(shown)
            yield (
                Region(region.x, rows.y, region.width, rows.height),
                clip,
                widget.render_lines(Region(shown.x - region.x, rows.y - region.y, shown.width, rows.height)),
            )
            left = [one for one in left if not shown.contains_region(one)]


STEPS = 120
"""Places of the reading cursor across the window."""
_NOTICE = 7
"""Rows for saying what is unknown and what would supply it."""


class Bar(Canvas):
    """Every screen with the digit that opens it; the open one is bright."""

    def __init__(self, chosen: str) -> None:
        super().__init__(id="screens")
        self.chosen = chosen
        self._places: list[tuple[int, int, str]] = []

    def draw(self, width: int, height: int) -> list[Line]:
        self._places.clear()
        row, x = Line(width), 1
        view = getattr(self.app, "view", None)
        shown = {*view.offered, self.chosen, screens.OVERVIEW} if view is not None and view.offered else None
        found = screens.discover().items()
        entries = [(digit(name), screen.title, name) for name, screen in found if shown is None or name in shown]
        gap = 2 if width < 130 else 3
        cramped = sum(len(title) + 2 + gap for _, title, _ in entries) > width
        for key, title, name in entries:
            here = name == self.chosen
            title = "" if cramped and not here else title
            row.put(x, key, paint(FIRST, bold=True))
            row.put(x + 2, title, paint(BRIGHT if here else DIM, bold=here))
            end = x + 2 + len(title) if title else x + 1
            self._places.append((x, end, name))
            x = end + gap
        return [row]

    def on_click(self, event: events.Click) -> None:
        """A click opens the screen whose name it is on."""
        name = next((name for start, end, name in self._places if start <= event.x < end), None)
        if name is not None and name != self.chosen:
            cast("Ordering", self.app).action_board(name)


class Reading(TextualScreen[None]):
    """Holds the view, and the cursor by which all charts are read at one moment; moved by arrow keys or the mouse."""

    def __init__(self, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._compositor = SparingCompositor()
        self.view: View | None = None
        self.cursor_s: float | None = None
        self._panels: tuple[Panel, ...] = ()

    def _screen_resized(self, size: Size) -> None:
        """Lay out for the size the terminal has now. Two sizes told at once would else answer each other for ever."""
        if size == self.app.size:
            super()._screen_resized(size)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel; they are made once, and searching the tree for them costs a tick more than drawing some."""
        self._panels = self._panels or tuple(self.query(Panel))
        return self._panels

    @property
    def ordering(self) -> Ordering:
        """The application, as the one that takes orders."""
        return cast("Ordering", self.app)

    def receive(self, view: View) -> None:
        """Show a new view."""
        raise NotImplementedError

    def refill(self) -> None:
        """Show the last view again at another size: panels that were hidden did not draw it."""
        for panel in self.panels:
            panel.forget()
        if self.view is not None:
            self.receive(self.view)

    def read_at(self, columns: int) -> None:
        """Move the cursor by so many places; where there is none it starts at the end of the window.

        Called and not posted: a message would climb through every container first, and keys pressed fast would be
        answered late.
        """
        if self.view is None:
            return
        start, end = self.view.window
        at = end if self.cursor_s is None else self.cursor_s
        self.point(min(max(at + columns * (end - start) / STEPS, start), end))

    def point(self, time_s: float | None) -> None:
        """Put the cursor of all charts at a moment; None takes it away."""
        self.cursor_s = time_s
        for panel in self.panels:
            panel.point(time_s)


class Board(Reading):
    """Target, verdict in one line, the bar of all screens, then the parts that the screen named ``shows`` has."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Overview", id="back", show=False),
        Binding("t", "turn", "Next chart", id="chart.next", show=False),
    ]

    def __init__(self, shows: str) -> None:
        super().__init__(classes=f"board -{shows}")
        self.shows, self.what = shows, screens.discover()[shows]
        for key in self.what.keys:
            self._bindings.bind(key.key, f"own('{key.key}')", key.says)

    def compose(self) -> ComposeResult:
        what = self.what
        with Vertical(id="board"):
            yield TargetPanel()
            yield StatePanel()
            yield Bar(self.shows)
            with Container(id="board-body"):
                if what.judged:
                    yield FindingsPanel()
                    yield JudgedPanel()
                else:
                    if what.facts:
                        yield FactsPanel(title=f"{what.title} in numbers")
                    if what.wholes:
                        yield WholesPanel(what.wholes[0], what.empty)
                    if what.layers:
                        yield MapPanel("layers", "KV bytes per layer")
                    yield from (ChartPanel(chart, f"chart-{at}") for at, chart in enumerate(what.charts))
            with Horizontal(id="tables"):
                if what.table:
                    yield TablePanel("table", what.table[0])
                if what.beside:
                    yield TablePanel("beside", what.beside[0])
            yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#tables").display = self.what.table is not None
        self.take_focus()
        self.on_resize()

    def take_focus(self) -> None:
        """Focus the part that keys are for: the findings, else the first table, else the last panel that takes them."""
        found = [
            *self.query(FindingList),
            *self.query("#table"),
            *reversed([p for p in self.query(Panel) if p.can_focus]),
        ]
        if found:
            found[0].focus()

    @property
    def finding(self) -> Finding | None:
        """The chosen one, where this screen has findings: what keys act on."""
        panel = next(iter(self.query(FindingsPanel)), None)
        return panel.chosen if panel is not None and panel.is_mounted else None

    def on_resize(self) -> None:
        """Fewer columns where there is no room for three; then everything is drawn again."""
        width, body = self.app.size.width, self.query_one("#board-body", Container)
        self.set_class(width < 120, "-narrow")
        count = len([panel for panel in body.query(Panel) if panel.parent is body and panel.display])
        most = 4 if width >= 150 else 2 if count == 4 else 3
        columns = max(min(count, most if width >= 120 else 1 if self.what.judged else 2), 1)
        body.styles.grid_size_columns = columns
        body.styles.height = "2fr" if count > 2 and columns == 2 else "1fr"
        for facts in self.query(FactsPanel):
            facts.styles.row_span = 2 if count == 3 and columns == 2 else 1
        if count == 1 and self.what.table:
            body.styles.height = 6
        self.call_after_refresh(self.refill)

    def receive(self, view: View) -> None:
        """Hand every panel the new view; one made for another screen is passed over.

        A second table takes room only while it has something to say, charts of a finding while there is one.
        """
        if view.page is None or view.page.name != self.shows:
            return
        self.view = view
        for table in self.query("#beside"):
            table.display = view.page.beside is not None
        self._make_room(view)
        for panel in self.panels:
            panel.receive(view)

    def _make_room(self, view: View) -> None:
        """A table takes no more rows than it has, a part that nobody tells anything of none: the others have them."""
        assert view.page is not None
        alone = all(isinstance(fact.now, Missing) for fact in view.page.facts)
        tables = [
            table
            for table in (view.page.table, view.page.beside)
            if table is not None and (alone or not isinstance(table.rows, Missing))
        ]
        self.query_one("#tables").display = bool(tables)
        rows = max((_rows_of(table) for table in tables), default=_rows_of(Table()))
        for found in self.query("#tables"):
            # None of them yet: a view may come before the screen is composed.
            found.styles.max_height = rows + (1 if self.has_class("-narrow") else 2)
        known = {one for one in self.panels if isinstance(one, ChartPanel | WholesPanel | MapPanel) and one.known(view)}
        first = any(isinstance(one, ChartPanel) and not one.chart.fallback for one in known)
        wanted: list[tuple[Panel, bool]] = []
        for panel in self.panels:
            if isinstance(panel, JudgedPanel):
                wanted.append((panel, bool(view.findings)))
            elif isinstance(panel, ChartPanel):
                wanted.append((panel, panel in known and not (panel.chart.fallback and first)))
            elif isinstance(panel, WholesPanel | MapPanel):
                wanted.append((panel, panel in known))
        changed = [panel for panel, shown in wanted if panel.display != shown]
        for panel in changed:
            panel.display = not panel.display
        if changed:
            self.on_resize()

    def on_table_panel_chosen(self, event: TablePanel.Chosen) -> None:
        """Enter on a row: what the screen says it opens."""
        event.stop()
        asked = self.what.chosen(event.which, event.key, event.row) if self.what.chosen else None
        if isinstance(asked, Look):
            self.ordering.go(asked)
        elif asked is not None:
            self.ordering.ask_first(asked)

    def on_findings_panel_picked(self, event: FindingsPanel.Picked) -> None:
        """Another finding: its charts."""
        event.stop()
        self.ordering.order(Look(f"{self.shows}/{event.finding.id}"))

    def action_own(self, key: str) -> None:
        """A key of this screen alone."""
        self.ordering.order(next(one.order for one in self.what.keys if one.key == key))

    def action_turn(self) -> None:
        """The next of the judged signals' charts."""
        for panel in self.query(JudgedPanel):
            panel.action_turn()

    def action_back(self) -> None:
        """First let go of the reading cursor, then of what is opened, then back to the overview."""
        if self.cursor_s is not None:
            self.point(None)
        elif self.what.closes and self.view is not None and self.view.page is not None and self.view.page.about:
            self.ordering.order(Look(f"{self.shows}/"))
        else:
            self.ordering.action_close_board()


def _rows_of(table: Table) -> int:
    """Rows a table can fill: what it tells, its heading, its rows; or a notice with air around it."""
    return _NOTICE if isinstance(table.rows, Missing) or not table.rows else len(table.told) + 2 + len(table.rows)
