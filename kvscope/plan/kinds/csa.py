"""Compressed sparse attention (DeepSeek V4, ratio 4): one row and one index key per four tokens, read sparsely."""

from __future__ import annotations

from kvscope.plan.kinds import _latent_row
from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "one latent row and one index key per group of tokens, a window of whole rows, a compressor's state"
row_bytes = _latent_row.row_bytes


def rows(layer: Layer, context: int) -> Rows:
    """Grow by a row and an index key with every full group of tokens; read the window and ``top_k`` groups."""
    groups, window = context // layer.ratio, layer.window or 0
    read = min(context, window) + (min(groups, layer.top_k) if layer.top_k else groups)
    return Rows(growing=groups, fixed=window, read=read, index=groups)
