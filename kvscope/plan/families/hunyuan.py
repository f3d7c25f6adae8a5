"""Hunyuan: with cross-layer attention (``use_cla``) only every ``cla_share_factor``-th layer keeps KV."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("hunyuan", "hunyuan_v1_dense", "hunyuan_v1_moe")


def layers(config: ModelConfig) -> list[Layer]:
    """Full, and those that share."""
    factor = config.whole("cla_share_factor") if config.flag("use_cla") else 1
    config.read.add("cla_share_factor")
    size = config.maybe("attention_head_dim", "head_dim")
    found = []
    for stage in range(config.layers):
        layer = _attention.full(config, stage)
        if size:
            layer = replace(layer, key_dim=size, value_dim=size)
        found.append(layer if stage % factor == 0 else replace(layer, kind="shared"))
    return found
