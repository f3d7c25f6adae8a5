"""Models that give one window to all layers, or none: Mistral, Mixtral, Phi 3, StarCoder 2."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("mistral", "ministral", "ministral3", "mixtral", "phi3", "phi4mm", "phimoe", "starcoder2")


def layers(config: ModelConfig) -> list[Layer]:
    """A window everywhere where one is said, else every token; Ministral says it layer by layer."""
    if config.has("layer_types"):
        return _attention.full_or_window(config)
    make = _attention.window if config.has("sliding_window") else _attention.full
    return [make(config, stage) for stage in range(config.layers)]
