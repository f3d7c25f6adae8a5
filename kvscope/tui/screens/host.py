"""The machine: cores, GPUs, and what of a step the host takes."""

from __future__ import annotations

from kvscope.tui.palette import FIRST, SECOND
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import TablePanel
from kvscope.tui.screens._board import Board, BoardChart


class HostChart(BoardChart):
    TITLE = "Cores and host time"
    CHARTS = ((("host_cpu", FIRST),), (("host_share", SECOND),))


class GpuChart(BoardChart):
    TITLE = "GPU"
    SPARE = True
    CHARTS = ((("gpu_util", FIRST), ("gpu_memory", SECOND)),)


class HostScreen(Board):
    TITLE = "Host"
    KEY = "H"
    ORDER = 60
    HELP = "The machine: cores, GPUs, and what of a step the host takes."
    TABLE = "GPU by GPU"
    PANELS = (FactsPanel, HostChart, GpuChart, TablePanel)
