"""Heavily compressed attention (DeepSeek V4, ratio 128): one row per 128 tokens, all of them read, no index."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds import _latent_row
from kvscope.plan.kinds._base import Held

SAYS = "one latent row per large group of tokens, a window of whole rows, a compressor's state"


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Grow by a row with every full group of tokens."""
    ratio = _latent_row.ratio(config, layer, 128)
    state = _latent_row.state_bytes(ratio, config.head_dim)
    growing = context // ratio * _latent_row.row_bytes(config, widths)
    return Held(growing, _latent_row.window_bytes(config, widths) + state)
