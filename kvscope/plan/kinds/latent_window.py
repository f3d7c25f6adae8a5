"""A layer of DeepSeek V4 with compress ratio 0: the window and nothing behind it."""

from __future__ import annotations

from kvscope.plan.kinds import _latent_row
from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "a window of latent rows; nothing grows with the context"
row_bytes = _latent_row.row_bytes


def rows(layer: Layer, context: int) -> Rows:
    """Hold the window only."""
    window = layer.window or 0
    return Rows(fixed=window, read=min(context, window))
