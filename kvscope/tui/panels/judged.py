"""The signals that the chosen finding judged, each with the band in which its check says yes, onset and baseline."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.signals.reading import Missing
from kvscope.tui.palette import FIRST
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.line_chart import Curve, LineChart, Picture
from kvscope.view import View

_MOST = 3
_LOWEST = 8
"""Rows a chart needs where it is one of several."""


class JudgedPanel(Panel, can_focus=True):
    TITLE = "What made it fire"
    READS = ("page", "segments", "window", "diagnosis")
    HELP = "Every signal the finding judged. The shaded band is where its check says yes; t shows the next ones."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "turn", "Next chart", show=False),
        Binding("left", "cursor(-1)", "Earlier", show=False),
        Binding("right", "cursor(1)", "Later", show=False),
        Binding("shift+left", "cursor(-10)", "Much earlier", show=False),
        Binding("shift+right", "cursor(10)", "Much later", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._first = 0
        self._about = ""
        self._cursor_s: float | None = None
        self._view: View | None = None

    def compose(self) -> ComposeResult:
        for _ in range(_MOST):
            yield LineChart()

    def show(self, view: View) -> None:
        self._view = view
        about = view.page.about if view.page else ""
        if about != self._about:
            self._about, self._first = about, 0
        pictures = pictures_of(view)
        room = min(max(self.content_size.height // _LOWEST, 1), _MOST, max(len(pictures), 1))
        turned = [pictures[(self._first + at) % len(pictures)] for at in range(room)] if pictures else []
        self.border_subtitle = f"t: next of {len(pictures)}" if len(pictures) > room else ""
        for at, chart in enumerate(self.query(LineChart)):
            chart.display = at < max(len(turned), 1)
            picture = turned[at] if at < len(turned) else Picture()
            chart.show(Picture(picture.curves, picture.window, picture.spans, self._cursor_s, picture.onset_s))

    def on_resize(self) -> None:
        """Another number of charts may fit."""
        if self._view is not None:
            self.call_after_refresh(self.show, self._view)

    def point(self, time_s: float | None) -> None:
        self._cursor_s = time_s
        if self._view is not None:
            self.show(self._view)

    def action_turn(self) -> None:
        """The next chart comes first."""
        self._first += 1
        if self._view is not None:
            self.show(self._view)

    def action_cursor(self, columns: int) -> None:
        """Move the reading cursor."""
        self.move_cursor(columns)


def pictures_of(view: View) -> tuple[Picture, ...]:
    """One picture a judged signal; those nobody reads come last."""
    page = view.page
    if page is None:
        return ()
    finding = next((one for one in view.findings if one.id == page.about), None)
    onset = finding.onset_s if finding else None
    charts = sorted(page.charts, key=lambda trend: isinstance(trend.points, Missing))
    return tuple(Picture((Curve(one, FIRST),), view.window, view.segments, None, onset) for one in charts)
