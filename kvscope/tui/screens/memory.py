"""The pool: held, filled, wasted, and what admission believes against what is measured."""

from __future__ import annotations

from kvscope.tui.palette import FIRST, NOTE, SECOND
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.panels._wholes import WholesPanel
from kvscope.tui.screens._board import Board, BoardChart


class PoolChart(BoardChart):
    TITLE = "KV memory"
    CHARTS = ((("kv_memory", FIRST), ("kv_assumed", SECOND), ("kv_reserved", NOTE)),)


class TokenChart(BoardChart):
    TITLE = "Bytes per token"
    CHARTS = ((("bytes_measured", FIRST), ("bytes_assumed", SECOND)),)


class MemoryScreen(Board):
    TITLE = "Memory"
    KEY = "M"
    ORDER = 40
    HELP = "The pool: held, filled, wasted, and what admission believes against what is measured."
    TABLE = "By length of request"
    PANELS = (FactsPanel, WholesPanel, PoolChart, TokenChart, TablePanel)
