"""MiniMax Text-01 and M1: lightning attention (a matrix a head) with full layers between; M3: an index over blocks."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import AUTO, Layer, StatePart

MODEL_TYPES = (
    "minimax", "minimax_m1", "minimax_text_01", "MiniMaxText01", "MiniMaxM1", "minimax_m3", "minimax_m3_vl",
    "minimax_m3_vl_text",
)  # fmt: skip
LIGHTNING_WORDS = ("linear_attention", "lightning_attention")
SPARSE_WORDS = ("minimax_m3_sparse",)


def layers(config: ModelConfig) -> list[Layer]:
    """By ``layer_types``, ``attn_type_list`` (1: full), or alternating as the class has it."""
    if config.model_type.startswith("minimax_m3"):
        return _m3(config)
    if config.has("layer_types"):
        makers = {_attention.FULL_WORDS: _attention.full, LIGHTNING_WORDS: _lightning}
        return _attention.by_word(config, "layer_types", makers)
    if config.has("attn_type_list"):
        marks = config.per_layer("attn_type_list")
        if any(mark not in (0, 1) for mark in marks):
            raise config.refuse("attn_type_list", "0 and 1, one a layer")
        return [(_attention.full if mark else _lightning)(config, at) for at, mark in enumerate(marks)]
    if config.model_type != "minimax":
        raise config.refuse("attn_type_list", "a list of 0 and 1, one a layer")
    return [(_lightning if at % 2 else _attention.full)(config, at) for at in range(config.layers)]


def _lightning(config: ModelConfig, stage: int) -> Layer:
    size = _attention.head_dim(config)
    state = (StatePart("recurrent", _attention.query_heads(config), size * size, dtype=AUTO),)
    return Layer("linear", state=state, stage=stage)


def _m3(config: ModelConfig) -> list[Layer]:
    marks = _sparse_marks(config)
    found = []
    for stage, sparse in enumerate(marks):
        layer = _attention.full(config, stage)
        found.append(_chosen(config, layer) if sparse else layer)
    return found


def _sparse_marks(config: ModelConfig) -> list[bool]:
    if config.has("layer_types"):
        words = config.per_layer("layer_types")
        if set(map(str, words)) - {*SPARSE_WORDS, *_attention.FULL_WORDS}:
            raise config.refuse("layer_types", "full_attention and minimax_m3_sparse")
        return [word in SPARSE_WORDS for word in words]
    if config.has("sparse_attention_config"):
        marks = config.part("sparse_attention_config").get("sparse_attention_freq")
        if isinstance(marks, list) and len(marks) >= config.layers and not any(mark not in (0, 1) for mark in marks):
            return [bool(mark) for mark in marks[: config.layers]]
    raise config.refuse("sparse_attention_config", "sparse_attention_freq of 0 and 1, or layer_types")


def _chosen(config: ModelConfig, layer: Layer) -> Layer:
    part = config.part("sparse_attention_config") if config.has("sparse_attention_config") else config
    blocks = part.maybe("sparse_topk_blocks", "index_topk_blocks") or config.whole("index_topk_blocks")
    local = part.maybe("sparse_local_block", "index_local_blocks", least=0) or 0
    size = part.maybe("sparse_block_size", "index_block_size") or config.whole("index_block_size")
    index = part.maybe("sparse_index_dim", "index_head_dim") or config.whole("index_head_dim")
    config.read.add("index_n_heads")
    return replace(layer, kind="block_sparse", index=index, top_k=(blocks + local) * size)
