"""How much of the KV decode really reads, against how much it was asked to read."""

from __future__ import annotations

from kvscope.tui.palette import FIRST
from kvscope.tui.panels._chart import ChartPanel


class SparsePanel(ChartPanel):
    TITLE = "Sparse hit rate"
    ORDER = 30
    SHORT = "Sparse"
    HELP = "KV entries read / entries there without a policy, and the share the policy was asked for."
    CHARTS = ((("sparse_hit_rate", FIRST),),)
