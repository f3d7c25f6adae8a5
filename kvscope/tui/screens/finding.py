"""One finding in full, under the chart of the signal that made it fire."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from kvscope.finding import Finding
from kvscope.tui.finding_text import full, one_line
from kvscope.tui.panels._chart import chart_for
from kvscope.tui.widgets.line_chart import LineChart
from kvscope.view import View


class FindingScreen(Screen[None]):
    """Scrolls; keeps following the finding it shows while new views arrive."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="back"),
        Binding("enter", "back", "Back", show=False),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, finding: Finding, view: View) -> None:
        super().__init__()
        self.finding, self.view = finding, view

    def compose(self) -> ComposeResult:
        yield Static(id="finding-title")
        yield LineChart(id="finding-chart")
        with VerticalScroll(id="finding-scroll"):
            yield Static(id="finding-text")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.query_one("#finding-scroll").focus()
        self.call_after_refresh(self._write)

    def on_resize(self, _: events.Resize) -> None:
        """The text is as wide as the screen."""
        self.call_after_refresh(self._write)

    def receive(self, view: View) -> None:
        """The same finding in a newer view."""
        self.view = view
        newer = next((finding for finding in view.findings if finding.id == self.finding.id), self.finding)
        changed = newer != self.finding
        self.finding = newer
        if changed:
            self._write()
        else:
            self._chart()

    def _write(self) -> None:
        width = self.size.width - 4
        self.query_one("#finding-title", Static).update(one_line(self.finding, width))
        self._chart()
        room = min(self.query_one("#finding-scroll").size.width - 3, 110)
        self.query_one("#finding-text", Static).update(full(self.finding, room, self.view.can_apply))

    def _chart(self) -> None:
        chart = self.query_one(LineChart)
        picture = chart_for(self.view, [evidence.signal for evidence in self.finding.evidence])
        chart.display = picture is not None and self.size.height >= 30
        if picture is not None:
            chart.show(picture)

    def action_back(self) -> None:
        """To the dashboard."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Move through the text."""
        self.query_one("#finding-scroll").scroll_relative(y=lines, animate=False)
