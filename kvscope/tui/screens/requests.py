"""Finished requests, the newest first; one opened: its time, its KV by layer, what came from earlier turns."""

from __future__ import annotations

from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import BesideTable, TablePanel
from kvscope.tui.panels._wholes import WholesPanel
from kvscope.tui.screens._board import Board


class OpenedPanel(WholesPanel):
    TITLE = "One request"
    HELP = "Where the time of the opened request went, and what is known of its tokens."
    EMPTY = "Enter on a row opens the request"

    @classmethod
    def name_of(cls) -> str:
        return "opened"


class RequestsScreen(Board):
    TITLE = "Requests"
    KEY = "R"
    ORDER = 50
    HELP = "Finished requests, sorted by any column; one opened: its time, its KV by layer, its earlier turns."
    TABLE = "Finished requests: Enter opens one"
    BESIDE = "Its KV by layer"
    OPENS = True
    PANELS = (FactsPanel, OpenedPanel, TablePanel, BesideTable)

    def on_table_panel_chosen(self, event: TablePanel.Chosen) -> None:
        """Open a request; the table of its layers opens nothing."""
        event.stop()
        if event.which == "table":
            self.open(event.key)
