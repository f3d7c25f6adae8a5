"""The KV cache an engine's knobs ask for."""

from __future__ import annotations

from engine import forms
from engine.cache import KVCache
from engine.devices._base import Device, Operators
from engine.geometry import KVGeometry
from engine.knobs import KnobError, Knobs
from engine.model import ModelConfig
from engine.representatives import KINDS

KERNELS = ("generic", "block")
"""What devices other than the CPU have."""
SMALLEST = 8
"""Block ids are made for blocks of at least an eighth of the full size: tables must not outgrow what they describe."""


def geometry_of(config: ModelConfig, knobs: Knobs, block_tokens: int, dtype: str = "float32") -> KVGeometry:
    """ValueError where the model's or the knobs' numbers do not go together."""
    rows, tokens = KINDS[knobs.representatives]
    rep_tokens = min(tokens or block_tokens, block_tokens)
    shape = (config.layers, config.kv_heads, config.q_heads, config.head_dim)
    return KVGeometry(*shape, block_tokens, rep_tokens, rows, knobs.lowrank_rank, dtype, knobs.block_entries)


def make_cache(
    config: ModelConfig, knobs: Knobs, pool_bytes: int, block_tokens: int, device: Device | None = None
) -> KVCache:
    """ValueError where a pool of this size cannot hold anything, or ``device`` has no kernels for the knobs."""
    if device is not None and device.operators is not None:
        return _on_device(config, knobs, pool_bytes, block_tokens, device, device.operators)
    geometry, cold = geometry_of(config, knobs, block_tokens), forms.get(knobs.cold_form)
    page_bytes = max(cold.page_bytes(geometry), geometry.hot_page_bytes // SMALLEST)
    return KVCache(
        geometry,
        pool_bytes,
        max(1, pool_bytes // (page_bytes * geometry.pages_per_block)),
        split_of(knobs),
        host_bytes=knobs.host_mib << 20,
        contiguous=knobs.pool == "contiguous",
    )


def split_of(knobs: Knobs) -> dict[str, float] | None:
    """Each form's share of a split pool; None where all share one."""
    return {"hot": knobs.split_hot, knobs.cold_form: 1.0 - knobs.split_hot} if knobs.pool == "split" else None


def check_knobs(knobs: Knobs, device: Device | None) -> None:
    """KnobError for what the device has no kernels for."""
    if device is None or device.operators is None:
        return
    if knobs.kernels not in KERNELS or knobs.selector not in ("same", *KERNELS):
        raise KnobError(
            f"knobs kernels {knobs.kernels!r}, selector {knobs.selector!r}: device {device.name} has "
            f"{' and '.join(KERNELS)}"
        )


def _on_device(
    config: ModelConfig, knobs: Knobs, pool_bytes: int, block_tokens: int, device: Device, operators: Operators
) -> KVCache:
    """A pool on a device."""
    from engine.devices._cache import DeviceCache

    check_knobs(knobs, device)
    geometry = geometry_of(config, knobs, block_tokens, device.precision)
    page_bytes = max(forms.get(knobs.cold_form).page_bytes(geometry), geometry.hot_page_bytes // SMALLEST)
    return DeviceCache(
        geometry,
        pool_bytes,
        max(1, pool_bytes // (page_bytes * geometry.pages_per_block)),
        split_of(knobs),
        device=device.device,
        operators=operators,
        host_bytes=knobs.host_mib << 20,
        contiguous=knobs.pool == "contiguous",
    )
