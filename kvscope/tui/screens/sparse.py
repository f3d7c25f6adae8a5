"""What decode reads of the KV against what it was asked to read, and what choosing costs."""

from __future__ import annotations

from kvscope.tui.palette import FIRST, SECOND
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.panels.sparse import SparsePanel
from kvscope.tui.screens._board import Board, BoardChart


class IndexChart(BoardChart):
    TITLE = "Cost of choosing and collecting"
    CHARTS = ((("index_share", FIRST), ("gather_share", SECOND)),)


class SparseScreen(Board):
    TITLE = "Sparse"
    KEY = "S"
    ORDER = 20
    HELP = "What decode reads of the KV against what it was asked to read, and what choosing costs."
    TABLE = "Share read by context"
    PANELS = (FactsPanel, SparsePanel, IndexChart, TablePanel)
