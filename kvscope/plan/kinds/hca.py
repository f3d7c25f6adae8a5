"""Heavily compressed attention (DeepSeek V4, ratio 128): one row per 128 tokens, all of them read, no index."""

from __future__ import annotations

from kvscope.plan.kinds import _latent_row
from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "one latent row per large group of tokens, a window of whole rows, a compressor's state"
row_bytes = _latent_row.row_bytes


def rows(layer: Layer, context: int) -> Rows:
    """Grow by a row with every full group of tokens."""
    groups, window = context // layer.ratio, layer.window or 0
    return Rows(growing=groups, fixed=window, read=min(context, window) + groups)
