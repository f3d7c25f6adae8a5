"""LFM 2: short convolutions in most layers, full attention in some."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer, StatePart

MODEL_TYPES = ("lfm2", "lfm2_moe")


def layers(config: ModelConfig) -> list[Layer]:
    """By ``layer_types``, or by ``full_attn_idxs``."""
    config.read.add("full_attn_idxs")
    if config.has("layer_types"):
        return _attention.by_word(config, "layer_types", {_attention.FULL_WORDS: _attention.full, ("conv",): _conv})
    places = config.get("full_attn_idxs")
    if not isinstance(places, list) or any(type(at) is not int or not 0 <= at < config.layers for at in places):
        raise config.refuse("full_attn_idxs", "a list of layers, or layer_types")
    return [(_attention.full if at in places else _conv)(config, at) for at in range(config.layers)]


def _conv(config: ModelConfig, stage: int) -> Layer:
    width = config.whole("hidden_size")
    return Layer("conv", state=(StatePart("conv", width, 1, config.whole("conv_L_cache")),), stage=stage)
