"""transformers' own caches (``DynamicCache``): whole tensors, no pages; latent rows and index keys as they are.

A convolution's past has as many columns as its kernel; states of a delta rule are kept in 32 bits. A window keeps
one token less than it is wide once it is full.
"""

from __future__ import annotations

from kvscope.plan import kinds
from kvscope.plan.engines._base import Ask, Layout
from kvscope.plan.engines.none import _fill
from kvscope.plan.layer import Layer

NAME = "transformers"
VERSION = "5.24.0"
SOURCE = "cache_utils.py (DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer)"
VERSIONS: tuple[str, ...] = ()


def layout(ask: Ask, stage: int = 0) -> Layout:
    """Count the tensors of a cache after a prompt of ``context`` tokens."""
    layers = ask.stage(stage)
    state = sum(ask.state(layer, whole_kernel=True) for layer in layers)
    rows = [(_rows(layer, ask.context), _row(ask, layer)) for layer in layers]
    request = sum(count * size for count, size in rows) + state
    growing = sum(size for (count, size), layer in zip(rows, layers, strict=True) if _grows(layer, ask.context))
    return Layout(growing, state, request, lambda pool: _fill(pool, request, ask.context))


def _rows(layer: Layer, context: int) -> int:
    if layer.kind in ("window", "chunk") and layer.window and context >= layer.window:
        return layer.window - 1
    return kinds.rows(layer, context).growing


def _grows(layer: Layer, context: int) -> bool:
    return _rows(layer, context + 1) > _rows(layer, context)


def _row(ask: Ask, layer: Layer) -> int:
    """A row with its index key, neither with scales."""
    index = ask.forms.key.bytes_of(layer.index)
    if layer.latent:
        return ask.forms.key.bytes_of(layer.latent + layer.rope) + index
    return ask.row(layer) + index
