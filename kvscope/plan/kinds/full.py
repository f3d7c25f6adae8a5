"""Full attention over kept heads: MHA, GQA and MQA alike; every token keeps its keys and its values."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

SAYS = "every token keeps keys and values of every KV head"


def numbers_per_token(config: ModelConfig) -> int:
    """Numbers one token keeps in one layer: keys and values of all KV heads."""
    values = config.whole("v_head_dim") if config.has("v_head_dim") else config.head_dim
    return config.kv_heads * (config.head_dim + values)


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Grow by one token's keys and values a token."""
    return Held(widths.kv(context * numbers_per_token(config)))
