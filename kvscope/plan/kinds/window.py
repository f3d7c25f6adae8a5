"""Sliding window or chunk: like full attention, but only the newest tokens stay."""

from __future__ import annotations

from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "only the newest tokens of a window keep keys and values"


def rows(layer: Layer, context: int) -> Rows:
    """Grow until the window is full, then stay."""
    kept = min(context, layer.window or context)
    return Rows(growing=kept, read=kept)
