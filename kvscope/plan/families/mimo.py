"""MiMo V2: windows by ``hybrid_layer_pattern`` (1) with heads and head sizes of their own, keys wider than values."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("mimo_v2_flash", "mimo_v2")
MEANS_NOTHING = ("sliding_window_size", "attention_chunk_size")
"""The window again, under other names."""


def layers(config: ModelConfig) -> list[Layer]:
    """Full where the pattern says 0, a window where it says 1."""
    found = []
    for stage, mark in enumerate(config.per_layer("hybrid_layer_pattern")):
        if mark not in (0, 1) or isinstance(mark, float):
            raise config.refuse("hybrid_layer_pattern", "0 (full) and 1 (window)")
        found.append(_window(config, stage) if mark else _attention.full(config, stage))
    return found


def _window(config: ModelConfig, stage: int) -> Layer:
    size = config.whole("swa_head_dim", "head_dim")
    return replace(
        _attention.window(config, stage),
        kv_heads=config.whole("swa_num_key_value_heads", "num_key_value_heads"),
        key_dim=size,
        value_dim=config.maybe("swa_v_head_dim", "v_head_dim") or size,
        query_heads=config.whole("swa_num_attention_heads", "num_attention_heads"),
    )
