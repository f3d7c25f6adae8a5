"""Replicas side by side, the one that stands out named."""

from __future__ import annotations

from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.screens._board import Board


class FleetScreen(Board):
    TITLE = "Fleet"
    KEY = "F"
    ORDER = 70
    HELP = "Replicas side by side, the one that stands out named."
    TABLE = "Replicas"
    PANELS = (FactsPanel, TablePanel)
