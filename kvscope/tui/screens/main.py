"""The dashboard: state and vital signs, then findings beside charts of what the source tells; one part when narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.widgets import Static

from kvscope import screens
from kvscope.finding import Finding
from kvscope.signals.reading import Missing
from kvscope.tui.panels.accounting import AccountingPanel, PartsPanel
from kvscope.tui.panels.chart import ChartPanel
from kvscope.tui.panels.findings import FindingsPanel
from kvscope.tui.panels.headlines import HeadlinesPanel, VitalsPanel
from kvscope.tui.panels.maps import MapPanel
from kvscope.tui.panels.panel import Panel
from kvscope.tui.panels.state import StatePanel
from kvscope.tui.panels.target import TargetPanel
from kvscope.tui.screens.board import Bar, Reading
from kvscope.tui.widgets.key_bar import KeyBar
from kvscope.view import Share, View

SMALLEST = (60, 15)
WIDE = 120
ROOMY = 150
_NOWHERE: tuple[object, ...] = ()
_FEW, _MANY = 4, 6
"""Charts beside each other on a wide and on a roomy terminal."""


class MainScreen(Reading):
    """Holds every panel; decides which are visible; hands each the view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "alone", "One part alone", show=False, id="panel.alone"),
        Binding("right_square_bracket", "turn(1)", "Next panel", show=False, id="panel.next"),
        Binding("left_square_bracket", "turn(-1)", "Previous panel", show=False, id="panel.previous"),
        Binding("escape", "overview", "Overview", show=False, id="overview"),
    ]

    def __init__(self, filled: Callable[[], None] = lambda: None) -> None:
        """``filled`` is called once, when every panel has its first view: then there is something to paint."""
        super().__init__()
        self.solo = ""
        """Name of the one panel in the body, or empty for the columns of a wide screen."""
        self._placed = _NOWHERE
        self._filled: Callable[[], None] | None = filled

    def compose(self) -> ComposeResult:
        # Before anything hangs below this screen: every later change of class styles all of it anew.
        self._classify(self.app.size.width, self.app.size.height)
        first, second, third, *rest = (
            ChartPanel(chart, f"chart-{at}", "chart")
            for at, chart in enumerate(screens.discover()[screens.OVERVIEW].charts)
        )
        with Vertical(id="dashboard"):
            yield from (TargetPanel(), StatePanel(), VitalsPanel(), HeadlinesPanel(), AccountingPanel())
            yield Bar(screens.OVERVIEW)
            with Horizontal(id="body"):
                with Container(id="story"):
                    yield from (FindingsPanel(), PartsPanel())
                with Container(id="charts"):
                    yield from (first, second, third, MapPanel("layers", "KV bytes per layer", "chart"), *rest)
                    yield MapPanel("latencies", "Time to the first token", "chart")
            yield KeyBar()
        yield Static(id="too-small")

    def on_mount(self) -> None:
        self.place(self.app.size.width, self.app.size.height)
        self.refill()
        self.query_one("#findings OptionList").focus()

    def on_resize(self, event: events.Resize) -> None:
        """Another size, another arrangement."""
        self.place(event.size.width, event.size.height)

    @property
    def known(self) -> list[str]:
        """The parts of the body that have something to show, findings first; before the first view the first four."""
        charts = [panel for panel in self.panels if isinstance(panel, ChartPanel | MapPanel)]
        if self.view is None or not self.view.trends:
            return ["findings", *(str(panel.id) for panel in charts[:_FEW])]
        parts = ["parts"] if _told(self.view) else []
        return ["findings", *(str(panel.id) for panel in charts if panel.known(self.view)), *parts]

    def place(self, width: int, height: int) -> None:
        """Choose what is visible at this size and of what is known; a terminal tells its size more than once."""
        known, view = self.known, self.view
        compared = view is not None and any(span.is_baseline for span in view.segments)
        accounted = view is not None and (_told(view) or (height >= 30 and _known(view.request_path)))
        arrangement = (width, height, self.solo, *known, compared, accounted)
        if arrangement == self._placed:
            return
        self._placed = arrangement
        tiny = width < SMALLEST[0] or height < SMALLEST[1]
        self.query_one("#dashboard").display = not tiny
        self.query_one("#too-small").display = tiny
        if tiny:
            need = f"kvscope needs {SMALLEST[0]}×{SMALLEST[1]}; this terminal is {width}×{height}. q quits."
            self.query_one("#too-small", Static).update(need)
            return
        solo = self._classify(width, height)
        self.query_one(HeadlinesPanel).display = compared
        self.query_one(VitalsPanel).display = height >= 20 and (not compared or height >= 40)
        self.query_one(AccountingPanel).display = accounted
        most = _MANY if self.has_class("-roomy") else _FEW
        shown = {solo} if solo else {"findings", *[name for name in known if name not in ("findings", "parts")][:most]}
        for panel in self.panels:
            if panel.slot != "top":
                panel.display = panel.id in shown
        drawn = [panel for panel in self.panels if panel.slot == "chart" and panel.display]
        for panel in drawn:
            alone = panel is drawn[-1] and len(drawn) % 2 == 1 and not solo
            panel.styles.column_span = 2 if alone else 1
        for name in ("story", "charts"):
            box = self.query_one(f"#{name}")
            box.display = any(panel.display for panel in box.query(Panel))
        self.call_after_refresh(self.refill)

    def _classify(self, width: int, height: int) -> str:
        """Tell the stylesheet of this size, all in one; returns the one panel in the body, if only one has room."""
        columns = width >= WIDE and height >= 30
        solo = self.solo or ("" if columns else "findings")
        arranged = {
            "-narrow": not columns,
            "-roomy": width >= ROOMY and height >= 42,
            "-tall": height >= 42,
            "-low": height < 22,
            "-solo": bool(solo),
        }
        self.set_classes([*(self.classes - arranged.keys()), *(name for name, on in arranged.items() if on)])
        return solo

    def receive(self, view: View) -> None:
        """Hand every panel the new view; while they are being made it waits for them."""
        self.view = view
        if self._placed == _NOWHERE:
            return
        self.place(self.app.size.width, self.app.size.height)
        for panel in self.panels:
            panel.receive(view)
        if self._filled is not None:
            filled, self._filled = self._filled, None
            filled()

    def _open(self, name: str) -> None:
        """One panel alone, or all again."""
        self.solo = name
        self.place(self.app.size.width, self.app.size.height)
        if name:
            target = self.query_one(f"#{name}", Panel)
            inner = target.query("OptionList")
            (inner.first() if inner else target).focus()

    def action_alone(self) -> None:
        """The part that has the focus alone; again: all of them."""
        focused = (
            next((one for one in self.focused.ancestors_with_self if isinstance(one, Panel)), None)
            if self.focused
            else None
        )
        self._open("" if self.solo or focused is None else str(focused.id))

    def action_turn(self, step: int) -> None:
        """The next or previous panel alone."""
        names = self.known
        at = names.index(self.solo) if self.solo in names else (0 if self.has_class("-narrow") else -step)
        self._open(names[(at + step) % len(names)])

    def action_overview(self) -> None:
        """First let go of the reading cursor, then of the one replica, then of the single panel."""
        if self.cursor_s is not None:
            self.point(None)
            return
        if self.view is not None and self.view.only:
            self.ordering.action_close_board()
            return
        self._open("")
        self.query_one("#findings OptionList").focus()

    @property
    def finding(self) -> Finding | None:
        """The chosen finding: what keys act on."""
        return self.query_one(FindingsPanel).chosen if self._placed != _NOWHERE else None


def _told(view: View) -> bool:
    """Whether the engine tells where a token's time goes."""
    return _known(view.accounting)


def _known(parts: tuple[Share, ...]) -> bool:
    return any(not isinstance(part.share, Missing) for part in parts)
