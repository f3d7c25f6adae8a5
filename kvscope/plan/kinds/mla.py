"""Multi-head latent attention: one latent vector and one RoPE key a token, shared by all heads (DeepSeek V2, V3).

The row is whole on every tensor-parallel rank, because every head needs it.
"""

from __future__ import annotations

from kvscope.plan.forms import KvForms
from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "every token keeps one latent vector and one RoPE key, shared by all heads, on every rank"


def rows(layer: Layer, context: int) -> Rows:
    """Grow by a row a token; all are read."""
    return Rows(growing=context, read=context)


def row_bytes(layer: Layer, forms: KvForms, tp: int) -> int:
    """One latent vector with its RoPE key."""
    return forms.key.bytes_of(layer.latent + layer.rope)
