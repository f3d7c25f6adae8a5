"""One finding in full, with the charts of the signals that made it fire."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from kvscope.finding import Finding
from kvscope.tui.finding_text import full, one_line
from kvscope.tui.panels.chart import charts_for
from kvscope.tui.panels.judged import pictures_of
from kvscope.tui.widgets.key_bar import KeyBar
from kvscope.tui.widgets.line_chart import LineChart, Picture
from kvscope.view import View

_CHARTS = 3


class FindingScreen(Screen[None]):
    """Scrolls; keeps following the finding it shows while new views arrive."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="back"),
        Binding("enter", "back", "Back", show=False),
        Binding("t", "turn", "Next chart", id="finding.chart"),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, finding: Finding, view: View) -> None:
        super().__init__()
        self.finding, self.view = finding, view
        self._first = 0

    def compose(self) -> ComposeResult:
        yield Static(id="finding-title")
        with Container(id="finding-body"):
            with Container(id="finding-charts"):
                yield from (LineChart() for _ in range(_CHARTS))
            with VerticalScroll(id="finding-scroll"):
                yield Static(id="finding-text")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#finding-scroll").focus()
        self._place()

    def on_resize(self, _: events.Resize) -> None:
        """The text is as wide as the screen leaves it."""
        self._place()

    def receive(self, view: View) -> None:
        """The same finding in a newer view."""
        self.view = view
        newer = next((finding for finding in view.findings if finding.id == self.finding.id), self.finding)
        shown = sum(chart.display for chart in self.query(LineChart))
        changed, self.finding = newer != self.finding or shown != len(self._pictures()), newer
        if changed:
            self._place()
        else:
            self._draw()

    def _pictures(self) -> tuple[Picture, ...]:
        """The judged signals' own charts once they are read; until then the lines that stand for them."""
        room = _CHARTS if self.has_class("-beside") else max(min(self.size.width // 50, _CHARTS), 1)
        page = self.view.page
        if page is not None and page.about == self.finding.id:
            known = pictures_of(self.view)
            return tuple(known[(self._first + at) % len(known)] for at in range(min(room, len(known))))
        checks = [*self.finding.evidence, *(rival.evidence for rival in self.finding.rivals)]
        pictures = charts_for(self.view, [check.signal for check in checks])
        return tuple(replace(one, onset_s=self.finding.onset_s) for one in pictures[:room])

    def _place(self) -> None:
        """Charts beside the text, above it, or not at all, as the screen allows."""
        self.set_class(self.size.width >= 140, "-beside")
        pictures = self._pictures()
        self.set_class(self.size.height < 32, "-low")
        room = self.has_class("-beside") or self.size.height >= 20
        self.query_one("#finding-charts").display = bool(pictures) and room
        for index, chart in enumerate(self.query(LineChart)):
            chart.display = index < len(pictures)
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        self.query_one("#finding-title", Static).update(one_line(self.finding, self.size.width - 4))
        width = min(self.query_one("#finding-scroll").size.width - 3, 110)
        self.query_one("#finding-text", Static).update(full(self.finding, width, self.view.can_apply))
        self._draw()

    def _draw(self) -> None:
        for chart, picture in zip(self.query(LineChart), self._pictures(), strict=False):
            chart.show(picture)

    def action_back(self) -> None:
        """To the dashboard."""
        self.dismiss()

    def action_turn(self) -> None:
        """The next of the judged signals comes first."""
        self._first += 1
        self._draw()

    def action_scroll(self, lines: int) -> None:
        """Move through the text."""
        self.query_one("#finding-scroll").scroll_relative(y=lines, animate=False)
