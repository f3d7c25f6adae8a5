"""Short convolution layers (LFM2): the last few inputs of every channel."""

from __future__ import annotations

from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "the last few inputs of a short convolution; nothing grows with the context"


def rows(layer: Layer, context: int) -> Rows:
    """Keep no rows: the state is all there is."""
    return Rows()
