"""Reads served from the hot and from the cold tier."""

from __future__ import annotations

from kvscope.tui.palette import COLD, HOT
from kvscope.tui.panels._chart import ChartPanel


class TiersPanel(ChartPanel):
    TITLE = "Hot and cold reads"
    ORDER = 40
    SHORT = "Hot/cold"
    HELP = "Block reads of decode per second, by the tier that served them."
    CHARTS = ((("hot_reads", HOT), ("cold_reads", COLD)),)
