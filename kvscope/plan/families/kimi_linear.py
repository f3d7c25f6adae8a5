"""Kimi Linear: Kimi delta attention (KDA) in most layers, latent attention in the rest; layers are numbered from 1."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import deepseek
from kvscope.plan.layer import Layer, StatePart

MODEL_TYPES = ("kimi_linear",)


def layers(config: ModelConfig) -> list[Layer]:
    """Each layer stands in one of two lists."""
    part = config.part("linear_attn_config")
    linear, latent = part.get("kda_layers"), part.get("full_attn_layers")
    if not isinstance(linear, list) or not isinstance(latent, list):
        raise config.refuse("linear_attn_config", "lists kda_layers and full_attn_layers")
    if sorted(map(str, [*linear, *latent])) != sorted(str(at + 1) for at in range(config.layers)):
        raise config.refuse("linear_attn_config", f"each of layers 1 to {config.layers} in one of its two lists")
    heads, width = part.whole("num_heads"), part.whole("head_dim")
    columns = part.whole("short_conv_kernel_size")
    state = (
        StatePart("recurrent", heads, width * width, dtype="float32"),
        StatePart("conv", heads, 3 * width, columns),
    )
    config.maybe("num_nextn_predict_layers", least=0)
    return [
        Layer("linear", state=state, stage=at) if at + 1 in linear else deepseek.latent(config, at)
        for at in range(config.layers)
    ]
