"""A layer that reads the KV of an earlier one and keeps none itself (Gemma 3n)."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

SAYS = "reads the KV of an earlier layer, keeps none"


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Hold nothing."""
    return Held(0)
