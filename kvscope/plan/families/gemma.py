"""Gemma 3n and 4: windows and full layers, whose last ones share the KV of earlier ones.

Gemma 4: full layers have heads of ``global_head_dim``, and ``num_global_key_value_heads`` of them where
``attention_k_eq_v`` is set (keys then serve as values; engines store both).
"""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("gemma3n_text", "gemma4_text")
PERIODS = {"gemma3n_text": 5, "gemma4_text": 6}
GLOBAL_HEAD_DIM = 512


def layers(config: ModelConfig) -> list[Layer]:
    """Windows and full layers, then those that share."""
    if config.has("layer_types"):
        found = _attention.by_word(
            config, "layer_types", {_attention.FULL_WORDS: _full, _attention.WINDOW_WORDS: _attention.window}
        )
    else:
        period = PERIODS[config.model_type]
        found = [(_full if (at + 1) % period == 0 else _attention.window)(config, at) for at in range(config.layers)]
    shared = config.maybe("num_kv_shared_layers", least=0) or 0
    if shared >= len(found):
        raise config.refuse("num_kv_shared_layers", f"fewer than the {len(found)} layers")
    kept = len(found) - shared
    return [layer if at < kept else replace(layer, kind="shared") for at, layer in enumerate(found)]


def _full(config: ModelConfig, stage: int) -> Layer:
    layer = _attention.full(config, stage)
    if config.model_type != "gemma4_text":
        return layer
    size = config.maybe("global_head_dim") or GLOBAL_HEAD_DIM
    heads = config.maybe("num_global_key_value_heads") if config.flag("attention_k_eq_v") else None
    config.read.add("num_global_key_value_heads")
    return replace(layer, key_dim=size, value_dim=size, kv_heads=heads or layer.kv_heads)
