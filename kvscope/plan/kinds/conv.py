"""Short convolution layers (LFM2): the last few inputs of every channel."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

SAYS = "the last few inputs of a short convolution; nothing grows with the context"
PAST_BYTES = 2


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Hold the past of the convolution."""
    return Held(0, config.whole("hidden_size") * config.whole("conv_L_cache") * PAST_BYTES)
