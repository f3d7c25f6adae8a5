"""Charts of a screen: it takes the focus, and the arrow keys move one reading cursor through all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from kvscope.screens import Chart
from kvscope.signals.reading import Missing
from kvscope.tui.palette import FIRST, curve_colour
from kvscope.tui.panels.panel import CURSOR_KEYS, Panel, Slot
from kvscope.tui.widgets.line_chart import Curve, LineChart, Picture
from kvscope.view import Trend, View


class ChartPanel(Panel, can_focus=True):
    """Draws a ``Chart`` of ``kvscope.screens``: one picture a tuple of lines."""

    TITLE = "Charts"
    READS = ("trends", "segments", "window", "past", "ended")
    BINDINGS: ClassVar[list[BindingType]] = [*CURSOR_KEYS]

    def __init__(self, chart: Chart, name: str, slot: Slot = "page") -> None:
        super().__init__(name, chart.title, slot)
        self.chart = chart

    def compose(self) -> ComposeResult:
        for _ in self.chart.pictures:
            yield LineChart()

    def show(self, view: View) -> None:
        some = self.known(view)
        for chart, curves in zip(self.query(LineChart), self.chart.pictures, strict=True):
            chart.display = not some or any(known(view, name) for name in curves)
            told = [(at, name) for at, name in enumerate(curves) if known(view, name)] or list(enumerate(curves))
            chart.show(
                Picture(
                    tuple(Curve(trend_of(view, name), curve_colour(name, at)) for at, name in told),
                    view.window,
                    view.segments,
                    chart.picture.cursor_s,
                    past=view.past,
                    ended=view.ended,
                )
            )

    def point(self, time_s: float | None) -> None:
        for chart in self.query(LineChart):
            old = chart.picture
            chart.show(replace(old, cursor_s=time_s))

    def known(self, view: View) -> bool:
        """Whether anything was read of any of its lines."""
        return any(known(view, name) for picture in self.chart.pictures for name in picture)

    def action_cursor(self, columns: int) -> None:
        """Move the reading cursor."""
        self.move_cursor(columns)


def trend_of(view: View, name: str) -> Trend:
    """The named trend, or one that says that nothing was read yet."""
    return view.trends.get(name) or Trend(name, name.replace("_", " "), "", ())


def known(view: View, name: str) -> bool:
    """Whether anything was read of the named trend."""
    points = trend_of(view, name).points
    return not isinstance(points, Missing) and bool(points)


def charts_for(view: View, signals: list[str]) -> tuple[Picture, ...]:
    """Charts of the trends that stand for ``signals``, in their order, each once."""
    names: list[str] = []
    for signal in signals:
        for trend in view.trends.values():
            if (
                signal in trend.signals
                and trend.name not in names
                and not isinstance(trend.points, Missing)
                and trend.points
            ):
                names.append(trend.name)
    return tuple(Picture((Curve(view.trends[name], FIRST),), view.window, view.segments) for name in names)
