"""State-space layers, Mamba 1 by channels and Mamba 2 by heads."""

from __future__ import annotations

from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "a recurrent state and a short convolution's past; nothing grows with the context"


def rows(layer: Layer, context: int) -> Rows:
    """Keep no rows: the state is all there is."""
    return Rows()
