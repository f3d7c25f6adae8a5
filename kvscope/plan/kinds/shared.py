"""A layer that reads the KV of an earlier one and keeps none itself (Gemma 3n and 4, Hunyuan's CLA, YOCO)."""

from __future__ import annotations

from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "reads the KV of an earlier layer, keeps none"


def rows(layer: Layer, context: int) -> Rows:
    """Keep nothing, read what the layer that it shares with keeps."""
    return Rows(read=min(context, layer.window) if layer.window else context)
