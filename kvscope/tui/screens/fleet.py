"""Replicas side by side, the one that stands out named."""

from __future__ import annotations

from kvscope.tui.palette import FIRST, SECOND
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.screens._board import Board, BoardChart


class FleetChart(BoardChart):
    TITLE = "All together"
    CHARTS = ((("throughput", FIRST),), (("kv_memory", SECOND),))


class FleetScreen(Board):
    """Enter on a replica opens the overview of that replica alone."""

    TITLE = "Fleet"
    KEY = "F"
    ORDER = 70
    HELP = "Replicas side by side, the one that stands out named."
    TABLE = "Replicas: Enter looks at one alone"
    PANELS = (FactsPanel, FleetChart, TablePanel)

    def on_table_panel_chosen(self, event: TablePanel.Chosen) -> None:
        """That replica alone."""
        event.stop()
        self.app.action_replica(event.key)  # type: ignore[attr-defined]
