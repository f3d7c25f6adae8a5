"""Sliding window or chunk: like full attention, but only the newest tokens stay."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds import full
from kvscope.plan.kinds._base import Held

SAYS = "only the newest tokens of a window keep keys and values"


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Grow until the window is full, then stay."""
    window = config.whole("sliding_window", "attention_chunk_size")
    return Held(widths.kv(min(context, window) * full.numbers_per_token(config)))
