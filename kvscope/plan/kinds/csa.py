"""Compressed sparse attention (DeepSeek V4, ratio 4): one row and one index key per four tokens, read sparsely.

Neighbouring groups overlap, so the compressor collects twice the ratio in tokens, at twice the width.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds import _latent_row
from kvscope.plan.kinds._base import Held

SAYS = "one latent row and one index key per group of tokens, a window of whole rows, a compressor's state"
OVERLAP = 2


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Grow by a row and an index key with every full group of tokens."""
    ratio = _latent_row.ratio(config, layer, 4)
    index = config.whole("index_head_dim")
    group = _latent_row.row_bytes(config, widths) + widths.index_row(index)
    rows, wide = OVERLAP * ratio, OVERLAP
    state = _latent_row.state_bytes(rows, wide * config.head_dim) + _latent_row.state_bytes(rows, wide * index)
    return Held(context // ratio * group, _latent_row.window_bytes(config, widths) + state)
