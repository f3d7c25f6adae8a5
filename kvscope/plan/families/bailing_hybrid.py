"""Ling and Ring with linear layers: lightning attention or KDA, and a latent or grouped layer at the end of each group.

Ring-linear 2.0 (``bailing_moe_linear``) also has full attention in the layers that are left over behind the last group.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, deepseek
from kvscope.plan.layer import Layer, StatePart

MODEL_TYPES = ("bailing_hybrid", "bailing_moe_linear", "bailing_moe_linear_v2")
MEANS_NOTHING = (
    "max_window_layers",
    "use_sliding_window",
    "sliding_window",
    "linear_attn_norm_group_size",
    "linear_silu",
)


def layers(config: ModelConfig) -> list[Layer]:
    """Linear but for every ``layer_group_size``-th layer."""
    drafts = config.maybe("num_nextn_predict_layers", least=0) or 0
    found = [_whole(config, at) if full else _linear(config, at) for at, full in enumerate(_marks(config))]
    return found + [_whole(config, config.layers - 1, draft=True) for _ in range(drafts)]


def _marks(config: ModelConfig) -> list[bool]:
    if config.has("layer_types"):
        words = config.per_layer("layer_types")
        if set(map(str, words)) - {"full_attention", "linear_attention"}:
            raise config.refuse("layer_types", "full_attention and linear_attention")
        return [word == "full_attention" for word in words]
    size = config.get("layer_group_size")
    if isinstance(size, list):
        marks = config.per_layer("layer_group_size")
        if any(mark not in (0, 1) for mark in marks):
            raise config.refuse("layer_group_size", "0 and 1, one a layer, or a number")
        return [mark != 1 for mark in marks]
    group = config.whole("layer_group_size")
    tail = config.layers // group * group if config.model_type != "bailing_hybrid" else config.layers
    return [(at + 1) % group == 0 or at >= tail for at in range(config.layers)]


def _whole(config: ModelConfig, stage: int, draft: bool = False) -> Layer:
    if config.has("kv_lora_rank"):
        return deepseek.latent(config, stage, draft)
    from dataclasses import replace

    return replace(_attention.full(config, stage), draft=draft)


def _linear(config: ModelConfig, stage: int) -> Layer:
    heads = _attention.query_heads(config)
    size = config.maybe("head_dim") or config.whole("hidden_size") // heads
    parts = [StatePart("recurrent", heads, size * size, dtype="float32")]
    if config.has("short_conv_kernel_size"):
        parts.append(StatePart("conv", heads, 3 * size, config.whole("short_conv_kernel_size")))
    return Layer("linear", state=tuple(parts), stage=stage)
