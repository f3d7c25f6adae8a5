"""Finished requests, the newest first; sorted by any column."""

from __future__ import annotations

from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.screens._board import Board


class RequestsScreen(Board):
    TITLE = "Requests"
    KEY = "R"
    ORDER = 50
    HELP = "Finished requests, the newest first; sorted by any column."
    TABLE = "Finished requests, newest first"
    PANELS = (FactsPanel, TablePanel)
