"""Qwen 2 to 3: full attention, and windows from ``max_window_layers`` on where ``use_sliding_window`` says so."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = (
    "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text",
    "qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_omni_moe_text",
)  # fmt: skip
MEANS_NOTHING = ("sliding_window", "max_window_layers")
"""Read only where ``use_sliding_window`` is true."""


def layers(config: ModelConfig) -> list[Layer]:
    """Full, or a window from a layer on."""
    if config.has("layer_types"):
        return _attention.full_or_window(config)
    if not config.flag("use_sliding_window") or not config.has("sliding_window"):
        return [_attention.full(config, stage) for stage in range(config.layers)]
    first = config.whole("max_window_layers", least=0)
    return [
        _attention.window(config, stage) if stage >= first else _attention.full(config, stage)
        for stage in range(config.layers)
    ]
