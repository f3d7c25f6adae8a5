"""What vLLM says in the labels of ``cache_config_info``: pool sizes and settings, one series per engine core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvscope.sources.maps._base import Derived, number

_OVERRIDDEN = "kv_cache_memory_bytes is not used: --num-gpu-blocks-override made the pool"


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Read pool sizes and settings from ``cache_config_info``, one series per engine core.

    One block of a core's pool (the null block) never holds a request, and the usage is a share of the others. The
    label ``kv_cache_memory_bytes`` is what was asked for: under an override it says nothing about the pool. In hybrid
    models the tokens are an approximation: blocks are unequal. The flag ``--max-num-seqs`` is a limit per core.
    """
    configs = infos.get("vllm:cache_config_info", ())
    found, tags = _limit(flags, max(1, len(configs)))
    if not configs:
        return Derived(found, tags)
    first = configs[0]
    if "cache_dtype" in first:
        tags["dtype"] = first["cache_dtype"]
    if "enable_prefix_caching" in first:
        tags["prefix_caching"] = "on" if first["enable_prefix_caching"] == "True" else "off"
    block = number(first, "effective_attention_block_size") or number(first, "block_size")
    if block:
        found["kv.block_size"] = block
    capacity = _capacity_tokens(configs, block)
    if capacity is None:
        return Derived(found, tags)
    found["kv.capacity_tokens"] = capacity
    usable = capacity - (block or 0.0) * len(configs)
    usage = values.get("kv.usage_ratio")
    if usage is not None:
        found["kv.used_tokens"] = usage * usable
    if number(first, "num_gpu_blocks_override") is not None:
        return Derived(found, tags, (_OVERRIDDEN,))
    sizes = [number(config, "kv_cache_memory_bytes") for config in configs]
    reserved = sum(size for size in sizes if size is not None)
    if reserved and None not in sizes:
        found["kv.reserved_bytes"] = reserved
        found["kv.bytes_per_token_assumed"] = reserved / capacity
        if usage is not None:
            found["kv.resident_bytes"] = usage * usable * reserved / capacity
    return Derived(found, tags)


def _limit(flags: Mapping[str, str], cores: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return the limit on running requests as a value and as a tag; the default of a server without the flag varies."""
    limit = number(flags, "max-num-seqs")
    return ({}, {}) if not limit else ({"sched.max_running": limit * cores}, {"cap": f"{limit * cores:g}"})


def _capacity_tokens(configs: Sequence[Mapping[str, str]], block: float | None) -> float | None:
    """Return the tokens all cores' pools hold. ``kv_cache_size_tokens`` is per core, ``num_gpu_blocks`` of all."""
    sizes = [number(config, "kv_cache_size_tokens") for config in configs]
    if sizes and None not in sizes:
        return sum(size for size in sizes if size is not None)
    blocks = max((number(config, "num_gpu_blocks") or 0.0 for config in configs), default=0.0)
    return blocks * block if blocks and block else None
