"""Throughput above KV memory: the two that should move together."""

from __future__ import annotations

from kvscope.tui.palette import FIRST, SECOND
from kvscope.tui.panels._chart import ChartPanel


class TrendPanel(ChartPanel):
    TITLE = "Throughput and memory"
    ORDER = 20
    SHORT = "Throughput"
    HELP = "Generated tokens per second and resident KV bytes, with every segment boundary."
    CHARTS = ((("throughput", FIRST),), (("kv_memory", SECOND),))
