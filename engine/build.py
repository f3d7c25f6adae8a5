"""The KV cache an engine's knobs ask for."""

from __future__ import annotations

from engine import forms
from engine.cache import KVCache
from engine.devices._base import Device
from engine.geometry import KVGeometry
from engine.knobs import KnobError, Knobs
from engine.model import ModelConfig
from engine.representatives import KINDS

SMALLEST = 8
"""Block ids are made for blocks of at least an eighth of the full size: tables must not outgrow what they describe."""


def geometry_of(config: ModelConfig, knobs: Knobs, block_tokens: int, dtype: str = "float32") -> KVGeometry:
    """ValueError where the model's or the knobs' numbers do not go together."""
    rows, tokens = KINDS[knobs.representatives]
    rep_tokens = min(tokens or block_tokens, block_tokens)
    shape = (config.layers, config.kv_heads, config.q_heads, config.head_dim)
    return KVGeometry(*shape, block_tokens, rep_tokens, rows, knobs.lowrank_rank, dtype, knobs.block_entries)


def make_cache(config: ModelConfig, knobs: Knobs, pool_bytes: int, block_tokens: int, device: Device) -> KVCache:
    """ValueError where a pool of this size cannot hold anything, or ``device`` has no kernels for the knobs."""
    check_knobs(knobs, device)
    geometry = geometry_of(config, knobs, block_tokens, device.precision)
    page_bytes = max(forms.get(knobs.cold_form).page_bytes(geometry), geometry.hot_page_bytes // SMALLEST)
    blocks = max(1, pool_bytes // (page_bytes * geometry.pages_per_block))
    return KVCache(
        geometry,
        pool_bytes,
        blocks,
        split_of(knobs),
        host_bytes=knobs.host_mib << 20,
        contiguous=knobs.pool == "contiguous",
        device=device.device,
        pool=device.operators.pool,
    )


def split_of(knobs: Knobs) -> dict[str, float] | None:
    """Each form's share of a split pool; None where all share one."""
    return {"hot": knobs.split_hot, knobs.cold_form: 1.0 - knobs.split_hot} if knobs.pool == "split" else None


def check_knobs(knobs: Knobs, device: Device) -> None:
    """KnobError for what the device has no kernels for."""
    there = device.operators.KERNELS
    if knobs.kernels not in there or knobs.selector not in ("same", *there):
        raise KnobError(
            f"knobs kernels {knobs.kernels!r}, selector {knobs.selector!r}: device {device.name} has "
            f"{' and '.join(there)}"
        )
