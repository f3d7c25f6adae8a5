"""The KV cache an engine's knobs ask for."""

from __future__ import annotations

from engine import forms
from engine.cache import KVCache
from engine.geometry import KVGeometry
from engine.knobs import Knobs
from engine.model import ModelConfig
from engine.representatives import KINDS

SMALLEST = 8
"""Block ids are made for blocks of at least an eighth of the full size: tables must not outgrow what they describe."""


def geometry_of(config: ModelConfig, knobs: Knobs, block_tokens: int) -> KVGeometry:
    """ValueError where the model's or the knobs' numbers do not go together."""
    rows, tokens = KINDS[knobs.representatives]
    rep_tokens = min(tokens or block_tokens, block_tokens)
    shape = (config.layers, config.kv_heads, config.q_heads, config.head_dim)
    return KVGeometry(*shape, block_tokens, rep_tokens, rows, knobs.lowrank_rank)


def make_cache(config: ModelConfig, knobs: Knobs, pool_bytes: int, block_tokens: int) -> KVCache:
    """ValueError where a pool of this size cannot hold anything."""
    geometry, cold = geometry_of(config, knobs, block_tokens), forms.get(knobs.cold_form)
    page_bytes = max(cold.page_bytes(geometry), geometry.hot_page_bytes // SMALLEST)
    split = {"hot": knobs.split_hot, cold.NAME: 1.0 - knobs.split_hot} if knobs.pool == "split" else None
    return KVCache(
        geometry,
        pool_bytes,
        max(1, pool_bytes // (page_bytes * geometry.pages_per_block)),
        split,
        host_bytes=knobs.host_mib << 20,
        contiguous=knobs.pool == "contiguous",
    )
