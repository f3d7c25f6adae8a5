"""Decoders that say their KV heads in words of their own: Falcon, BigCode, ChatGLM, DBRX, MPT, OpenELM, Step 3."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = (
    "falcon",
    "RefinedWeb",
    "RefinedWebModel",
    "gpt_bigcode",
    "chatglm",
    "dbrx",
    "mpt",
    "openelm",
    "step3_text",
)


def layers(config: ModelConfig) -> list[Layer]:
    """One full layer each, with as many KV heads as the words say."""
    if config.model_type == "openelm":
        return _openelm(config)
    heads = _attention.query_heads(config)
    kept = _kept(config, heads)
    size = _head_size(config, heads)
    layer = Layer("full", kept, size, size, query_heads=heads)
    return [replace(layer, stage=stage) for stage in range(config.layers)]


def _kept(config: ModelConfig, heads: int) -> int:
    if config.model_type == "dbrx":
        return config.part("attn_config").whole("kv_n_heads")
    if config.model_type == "mpt":
        part = config.part("attn_config") if config.has("attn_config") else None
        kept = part.maybe("kv_n_heads") if part else None
        return kept or (1 if part and part.get("attn_type") == "multiquery_attention" else heads)
    if config.model_type == "step3_text":
        return config.whole("num_attention_groups")
    if config.model_type == "chatglm":
        groups = config.maybe("multi_query_group_num")
        return groups if config.flag("multi_query_attention") and groups else heads
    config.read.add("multi_query")
    if config.model_type == "falcon" and config.flag("new_decoder_architecture"):
        return config.whole("num_kv_heads", "n_head_kv")
    config.read.update({"num_kv_heads", "n_head_kv", "new_decoder_architecture"})
    return 1 if config.flag("multi_query") else heads


def _head_size(config: ModelConfig, heads: int) -> int:
    config.read.add("attn_config")
    found = config.maybe("kv_channels", "head_dim")
    return found if found else config.whole("hidden_size", "n_embd", "d_model") // heads


def _openelm(config: ModelConfig) -> list[Layer]:
    size, kept, asked = config.whole("head_dim"), config.get("num_kv_heads"), config.get("num_query_heads")
    count = config.whole("num_transformer_layers")
    config.read.update({"num_gqa_groups", "qkv_multipliers"})
    for key, value in (("num_kv_heads", kept), ("num_query_heads", asked)):
        if not isinstance(value, list) or len(value) != count or any(type(one) is not int or one < 1 for one in value):
            raise config.refuse(key, f"{count} whole numbers, one a layer")
    return [Layer("full", kept[at], size, size, query_heads=asked[at], stage=at) for at in range(count)]
