"""A layer of DeepSeek V4 with compress ratio 0: the window and nothing behind it."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds import _latent_row
from kvscope.plan.kinds._base import Held

SAYS = "a window of latent rows; nothing grows with the context"


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Hold the window only."""
    return Held(0, _latent_row.window_bytes(config, widths))
