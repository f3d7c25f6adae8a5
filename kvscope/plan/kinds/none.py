"""A layer without attention (an MLP or expert block of a hybrid model that counts it as a layer)."""

from __future__ import annotations

from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "no attention, no cache"


def rows(layer: Layer, context: int) -> Rows:
    """Hold nothing."""
    return Rows()
