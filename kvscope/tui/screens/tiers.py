"""Hot and cold: reads, moves between them, bytes, and what decode waits for."""

from __future__ import annotations

from kvscope.tui.palette import FIRST, SECOND
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels.tiers import TiersPanel
from kvscope.tui.screens._board import Board, BoardChart


class MovesChart(BoardChart):
    TITLE = "Blocks moved"
    CHARTS = ((("promotions", FIRST), ("demotions", SECOND)),)


class StallChart(BoardChart):
    TITLE = "Share of decode waiting for it"
    CHARTS = ((("transfer_share", FIRST), ("decompress_share", SECOND)),)


class TiersScreen(Board):
    TITLE = "Tiers"
    KEY = "T"
    ORDER = 30
    HELP = "Hot and cold: reads, moves between them, bytes, and what decode waits for."
    PANELS = (FactsPanel, TiersPanel, MovesChart, StallChart)
