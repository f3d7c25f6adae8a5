"""OLMo Hybrid: a gated delta rule in three of four layers, sizes from the width where they are not said."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import AUTO, Layer

MODEL_TYPES = ("olmo_hybrid",)


def layers(config: ModelConfig) -> list[Layer]:
    """By ``layer_types``, or every fourth one full."""
    if config.has("layer_types"):
        makers = {_attention.FULL_WORDS: _attention.full, ("linear_attention",): _linear}
        return _attention.by_word(config, "layer_types", makers)
    return [(_attention.full if at % 4 == 3 else _linear)(config, at) for at in range(config.layers)]


def _linear(config: ModelConfig, stage: int) -> Layer:
    heads = _attention.query_heads(config)
    key_heads, value_heads = (
        config.maybe("linear_num_key_heads") or heads,
        config.maybe("linear_num_value_heads") or heads,
    )
    key = config.maybe("linear_key_head_dim") or int(0.75 * config.whole("hidden_size") / key_heads)
    value = config.maybe("linear_value_head_dim") or 2 * key
    columns = config.whole("linear_conv_kernel_dim")
    return Layer("linear", state=_state.delta_rule(key_heads, key, value_heads, value, columns, AUTO), stage=stage)
