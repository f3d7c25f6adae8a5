"""Maps: KV bytes of every layer, or how many requests each latency came to, over time."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.signals.reading import Missing
from kvscope.tui.panels.panel import CURSOR_KEYS, Panel, Slot
from kvscope.tui.widgets.heat_map import HeatMap
from kvscope.view import HeatMap as Cells
from kvscope.view import View


class MapPanel(Panel, can_focus=True):
    """Shows the map that ``field`` of a view holds."""

    TITLE = "Map"
    READS = ("layers", "latencies", "segments", "window", "ended")
    HELP = "Bytes of each layer, or requests by latency, over time; arrow keys read single cells."
    BINDINGS: ClassVar[list[BindingType]] = [
        *CURSOR_KEYS,
        Binding("up", "layer(-1)", "Layer up", show=False),
        Binding("down", "layer(1)", "Layer down", show=False),
    ]

    def __init__(self, field: str, title: str, slot: Slot = "page") -> None:
        super().__init__(field, title, slot)
        self.field = field

    def known(self, view: View) -> bool:
        """Whether anything was read for it."""
        cells = self.cells(view)
        return cells is not None and not isinstance(cells.rows, Missing) and bool(cells.rows)

    def cells(self, view: View) -> Cells | None:
        """The map of this panel in ``view``."""
        found = getattr(view, self.field)
        return found if isinstance(found, Cells) else None

    def compose(self) -> ComposeResult:
        yield HeatMap()

    def on_mount(self) -> None:
        self.query_one(HeatMap).shades = (
            self.app.console.color_system in (None, "standard") and not self.app.is_headless
        )

    def show(self, view: View) -> None:
        self.query_one(HeatMap).show(self.cells(view), view.window, view.segments, view.ended)

    def point(self, time_s: float | None) -> None:
        chart = self.query_one(HeatMap)
        chart.cursor_s = time_s
        chart.redraw()

    def action_cursor(self, columns: int) -> None:
        """Move the reading cursor in time."""
        self.move_cursor(columns)

    def action_layer(self, rows: int) -> None:
        """Move the reading cursor to another layer."""
        chart = self.query_one(HeatMap)
        if chart.cells is None or isinstance(chart.cells.rows, Missing):
            return
        if chart.cursor_s is None:
            self.move_cursor(0)
        last = len(chart.bands(len(chart.cells.rows), chart.size.height - 2)) - 1
        chart.cursor_band = min(max(chart.cursor_band + rows, 0), last)
        chart.redraw()
