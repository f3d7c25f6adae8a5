"""RWKV: a matrix a head, and the token before for its two shifts."""

from __future__ import annotations

from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "a matrix a head and the token before; nothing grows with the context"


def rows(layer: Layer, context: int) -> Rows:
    """Keep no rows: the state is all there is."""
    return Rows()
