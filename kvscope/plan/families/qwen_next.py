"""Qwen3-Next, Qwen 3.5 to 3.8: a gated delta rule in most layers, every fourth one full."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import AUTO, Layer

MODEL_TYPES = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe")
LINEAR_WORDS = ("linear_attention",)


def layers(config: ModelConfig) -> list[Layer]:
    """By ``layer_types``, or a full layer every ``full_attention_interval``; the draft layers are full."""
    drafts = config.maybe("mtp_num_hidden_layers", "num_nextn_predict_layers", least=0) or 0
    period = config.maybe("full_attention_interval") or 4
    if config.has("layer_types"):
        makers = {_attention.FULL_WORDS: _attention.full, LINEAR_WORDS: _linear}
        found = _attention.by_word(config, "layer_types", makers)
    else:
        found = [(_linear if (at + 1) % period else _attention.full)(config, at) for at in range(config.layers)]
    return found + [replace(_attention.full(config, config.layers - 1), draft=True) for _ in range(drafts)]


def _linear(config: ModelConfig, stage: int) -> Layer:
    state = _state.delta_rule(
        config.whole("linear_num_key_heads"),
        config.whole("linear_key_head_dim"),
        config.whole("linear_num_value_heads"),
        config.whole("linear_value_head_dim"),
        config.whole("linear_conv_kernel_dim"),
        config.number_type("mamba_ssm_dtype") or AUTO,
    )
    return Layer("linear", state=state, stage=stage)
