"""Step 3.5 and 3.7: windows and full layers, whose windows have heads of their own (``attention_other_setting``)."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("step3p5", "step3p7", "step3p7_text")
MEANS_NOTHING = ("mtp_layer_types", "yarn_only_types")


def layers(config: ModelConfig) -> list[Layer]:
    """By ``layer_types``, then the draft layers."""
    config.read.update({"num_attention_groups", "attention_other_setting"})
    makers = {_attention.FULL_WORDS: _full, _attention.WINDOW_WORDS: _window}
    return _attention.by_word(config, "layer_types", makers)


def _full(config: ModelConfig, stage: int) -> Layer:
    size = _attention.head_dim(config)
    heads = config.whole("num_attention_groups", "num_key_value_heads")
    return Layer("full", heads, size, size, query_heads=_attention.query_heads(config), stage=stage)


def _window(config: ModelConfig, stage: int) -> Layer:
    layer = replace(_full(config, stage), kind="window", window=config.whole("sliding_window"))
    if not config.has("attention_other_setting"):
        return layer
    other = config.part("attention_other_setting")
    size = other.maybe("head_dim") or layer.key_dim
    heads = other.maybe("num_attention_groups") or layer.kv_heads
    query = other.maybe("num_attention_heads") or layer.query_heads
    return replace(layer, kv_heads=heads, key_dim=size, value_dim=size, query_heads=query)
