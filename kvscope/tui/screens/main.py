"""The dashboard: four strips that are always there, and a body that is columns when wide and one panel when narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.widgets import Static

from kvscope.tui.palette import BRIGHT, DIM, FAINT, paint
from kvscope.tui.panels import discover, numbered
from kvscope.tui.panels._base import Panel
from kvscope.tui.panels.findings import FindingsPanel
from kvscope.tui.screens._board import Bar
from kvscope.tui.screens._reading import Reading
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.key_bar import KeyBar
from kvscope.view import View

SMALLEST = (60, 15)
WIDE = 120
ROOMY = 150
_NOWHERE = (0, 0, "")


class Tabs(Canvas):
    """The panels and their keys; the open one is bright."""

    chosen = ""

    def draw(self, width: int, height: int) -> list[Line]:
        row, x = Line(width), 1
        panels = numbered()
        full = sum(len(panel.TITLE) + 5 for panel in panels) <= width
        short = sum(len(panel.SHORT) + 5 for panel in panels) <= width
        for number, panel in enumerate(panels, start=1):
            here = panel.name_of() == self.chosen
            name = panel.TITLE if full else panel.SHORT if short or here else ""
            row.put(x, str(number), paint(BRIGHT if here else DIM, bold=True))
            row.put(x + 2, name, paint(BRIGHT if here else FAINT, bold=here))
            x += len(name) + (5 if name else 3)
        return [row]


class MainScreen(Reading):
    """Holds every panel; decides which are visible; hands each the view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"panel({n})", f"Panel {n}", show=False, id=f"panel.{n}") for n in range(1, 10)),
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
        panels = [panel() for panel in discover()]
        charts = [panel for panel in panels if panel.SLOT == "chart"]
        maps = [panel for panel in panels if panel.SLOT == "map"]
        with Vertical(id="dashboard"):
            yield from (panel for panel in panels if panel.SLOT == "top")
            yield Bar("")
            yield Tabs(id="tabs")
            with Horizontal(id="body"):
                with Container(id="story"):
                    yield from (panel for panel in panels if panel.SLOT in ("story", "page"))
                with Container(id="charts"):
                    yield from charts[:1] + maps + charts[1:]
            yield KeyBar()
        yield Static(id="too-small")

    def on_mount(self) -> None:
        for number, panel in enumerate(numbered(), start=1):
            self.query_one(f"#{panel.name_of()}", Panel).border_title = f"{number} {panel.TITLE}"
        self.place(self.app.size.width, self.app.size.height)
        self.refill()
        self.query_one("#findings OptionList").focus()

    def on_resize(self, event: events.Resize) -> None:
        """Another size, another arrangement."""
        self.place(event.size.width, event.size.height)

    def place(self, width: int, height: int) -> None:
        """Choose what is visible at this size; a terminal tells its size more than once."""
        if (width, height, self.solo) == self._placed:
            return
        self._placed = (width, height, self.solo)
        tiny = width < SMALLEST[0] or height < SMALLEST[1]
        self.query_one("#dashboard").display = not tiny
        self.query_one("#too-small").display = tiny
        if tiny:
            need = f"kvscope needs {SMALLEST[0]}×{SMALLEST[1]}; this terminal is {width}×{height}. q quits."
            self.query_one("#too-small", Static).update(need)
            return
        solo = self._classify(width, height)
        for panel in self.query(Panel):
            if panel.SLOT != "top":
                panel.display = panel.name_of() == solo if solo else panel.SLOT != "page"
        for name in ("story", "charts"):
            box = self.query_one(f"#{name}")
            box.display = any(panel.display for panel in box.query(Panel))
        tabs = self.query_one(Tabs)
        tabs.chosen = solo
        tabs.display = bool(solo)
        tabs.redraw()
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

    def refill(self) -> None:
        """Show the last view again: panels that were hidden did not draw it."""
        for panel in self.query(Panel):
            panel.forget()
        if self.view is not None:
            self.receive(self.view)

    def receive(self, view: View) -> None:
        """Hand every panel the new view; while they are being made it waits for them."""
        self.view = view
        if self._placed == _NOWHERE:
            return
        for panel in self.query(Panel):
            panel.receive(view)
        if self._filled is not None:
            filled, self._filled = self._filled, None
            filled()

    def action_panel(self, number: int) -> None:
        """Open a panel alone; the same key again goes back to the columns."""
        panels = numbered()
        if number > len(panels):
            return
        name = panels[number - 1].name_of()
        self.solo = "" if self.solo == name and not self.has_class("-narrow") else name
        self.place(self.app.size.width, self.app.size.height)
        target = self.query_one(f"#{name}", Panel)
        inner = target.query("OptionList")
        (inner.first() if inner else target).focus()

    def action_turn(self, step: int) -> None:
        """The next or previous panel."""
        names = [panel.name_of() for panel in numbered()]
        at = names.index(self.solo) if self.solo in names else (0 if self.has_class("-narrow") else -step)
        self.action_panel((at + step) % len(names) + 1)

    def action_overview(self) -> None:
        """First let go of the reading cursor, then of the one replica, then of the single panel."""
        if self.cursor_s is not None:
            self.point(None)
            return
        if self.view is not None and self.view.only:
            self.app.action_close_board()  # type: ignore[attr-defined]
            return
        self.solo = ""
        self.place(self.app.size.width, self.app.size.height)
        self.query_one("#findings OptionList").focus()

    @property
    def findings(self) -> FindingsPanel:
        """The findings panel."""
        return self.query_one(FindingsPanel)
