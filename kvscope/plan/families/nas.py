"""Models found by architecture search (DeciLM, Llama-Nemotron): each layer says its own heads, or has none."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("nemotron-nas", "deci")


def layers(config: ModelConfig) -> list[Layer]:
    """By ``block_configs``, or by ``num_key_value_heads_per_layer``."""
    heads, size = _attention.query_heads(config), _attention.head_dim(config)
    if config.has("num_key_value_heads_per_layer"):
        kept = config.per_layer("num_key_value_heads_per_layer")
        if any(type(one) is not int or one < 1 or heads % one for one in kept):
            raise config.refuse("num_key_value_heads_per_layer", f"divisors of {heads}, one a layer")
        return [Layer("full", one, size, size, query_heads=heads, stage=at) for at, one in enumerate(kept)]
    return [_block(config, block, at, heads, size) for at, block in enumerate(config.per_layer("block_configs"))]


def _block(config: ModelConfig, block: object, stage: int, heads: int, size: int) -> Layer:
    attention = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(attention, dict):
        raise config.refuse("block_configs", "an object with attention for each layer")
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return Layer("none", stage=stage)
    if attention.get("window_length") or attention.get("sparsify"):
        raise config.refuse("block_configs", "no window_length and no sparsify: what they keep is not known here")
    group = attention.get("n_heads_in_group")
    if isinstance(group, bool) or not isinstance(group, int) or group < 1 or heads % group:
        raise config.refuse("block_configs", f"n_heads_in_group a divisor of {heads}")
    return Layer("full", heads // group, size, size, query_heads=heads, stage=stage)
