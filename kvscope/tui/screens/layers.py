"""Every layer: its KV bytes over time and now, entries of both forms, what decode read."""

from __future__ import annotations

from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.panels.layers import LayersPanel
from kvscope.tui.screens._board import Board


class LayersScreen(Board):
    TITLE = "Layers"
    KEY = "L"
    ORDER = 10
    HELP = "Every layer: its KV bytes over time and now, entries of both forms, what decode read."
    TABLE = "Layer by layer"
    PANELS = (FactsPanel, LayersPanel, TablePanel)
