"""A layer without attention (an MLP or expert block of a hybrid model that counts it as a layer)."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

SAYS = "no attention, no cache"


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Hold nothing."""
    return Held(0)
