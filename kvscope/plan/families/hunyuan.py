"""Hunyuan: with cross-layer attention (``use_cla``) only every ``cla_share_factor``-th layer keeps KV."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("hunyuan", "hunyuan_v1_dense", "hunyuan_v1_moe")
LATENT_KEYS = ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
"""Sizes its configs carry whether or not ``use_mla`` is set."""


def layers(config: ModelConfig) -> list[Layer]:
    """Full, and those that share."""
    factor = config.whole("cla_share_factor") if config.flag("use_cla") else 1
    config.read.add("cla_share_factor")
    size = config.maybe("attention_head_dim", "head_dim")
    if config.flag("use_mla"):
        raise config.refuse("use_mla", "false: latent attention of this family is not counted")
    config.read.update(LATENT_KEYS)
    found = []
    for stage in range(config.layers):
        layer = _attention.full(config, stage)
        layer = replace(layer, key_dim=size or layer.key_dim, value_dim=size or layer.key_dim)
        found.append(layer if stage % factor == 0 else replace(layer, kind="shared"))
    return found
