"""Llama 4: chunked attention where a layer has RoPE, full attention where it has none."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = ("llama4_text", "llama4")


def layers(config: ModelConfig) -> list[Layer]:
    """By ``layer_types``, by ``no_rope_layers`` (1: chunked), or every fourth one full."""
    config.read.add("no_rope_layer_interval")
    if config.has("layer_types"):
        return _attention.by_word(
            config, "layer_types", {_attention.FULL_WORDS: _attention.full, _attention.CHUNK_WORDS: _chunk}
        )
    if config.has("no_rope_layers") and config.values["no_rope_layers"]:
        marks = config.per_layer("no_rope_layers")
        if any(mark not in (0, 1) for mark in marks):
            raise config.refuse("no_rope_layers", "0 and 1, one a layer")
    else:
        interval = config.maybe("no_rope_layer_interval") or 4
        marks = [int((at + 1) % interval != 0) for at in range(config.layers)]
    return [(_chunk if mark else _attention.full)(config, at) for at, mark in enumerate(marks)]


def _chunk(config: ModelConfig, stage: int) -> Layer:
    if "attention_chunk_size" in config.values and not config.has("attention_chunk_size"):
        return _attention.full(config, stage)
    return _attention.window(config, stage, config.whole("attention_chunk_size"), "chunk")
