"""What a checkpoint says about its own numbers: the dtype it computes in, that of its KV cache, bits of its weights."""

from __future__ import annotations

from typing import Any

from kvscope import kv_types
from kvscope.plan.config import ModelConfig

FALLBACK = "bf16"
WIDE_BITS = 16
LONGEST_NAME = 40


def compute_dtype(config: ModelConfig) -> str:
    """The dtype of activations; bf16 where nothing is said, which is noted."""
    for values in (config.values, config.outer):
        for key in ("dtype", "torch_dtype"):
            name = values.get(key)
            found = kv_types.find(name) if isinstance(name, str) else None
            if found is not None:
                # Engines compute in 16 bits where a checkpoint is published in 32 or 8.
                return found.name if found.bits() == WIDE_BITS else FALLBACK
    config.assume("no dtype in the config: bf16")
    return FALLBACK


def checkpoint_dtype(config: ModelConfig) -> str | None:
    """The KV dtype a checkpoint fixes: ``kv_cache_scheme`` (compressed-tensors), ``kv_cache_quant_algo`` (ModelOpt).

    A name that nobody knows is returned as it is: it is refused where it is used, not where another is asked for.
    """
    quantised = quantisation(config)
    algorithm = quantised.get("kv_cache_quant_algo")
    if algorithm:
        name = str(algorithm)[:LONGEST_NAME].lower()
        return {"fp8": "fp8_e4m3"}.get(name, name)
    scheme = quantised.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        said = f"{scheme.get('type')}{scheme.get('num_bits')}"[:LONGEST_NAME]
        return {"float8": "fp8_e4m3", "int8": "int8", "float4": "nvfp4"}.get(said, said)
    return None


def quantisation(config: ModelConfig) -> dict[str, Any]:
    """The quantisation part of the file, its ModelOpt inner part opened; empty where there is none."""
    for values in (config.outer, config.values):
        for key in ("quantization_config", "compression_config", "quantization"):
            found = values.get(key)
            if isinstance(found, dict):
                inner = found.get("quantization")
                return {**found, **inner} if isinstance(inner, dict) else dict(found)
    return {}


def weight_bits(config: ModelConfig) -> float:
    """Bits a number of a quantised linear layer takes, scales included; 16 where nothing is quantised."""
    found = quantisation(config)
    method = str(found.get("quant_method") or found.get("quant_algo") or "").lower()
    algorithm = str(found.get("quant_algo") or "").lower()
    if "fp4" in algorithm or "fp4" in method or method == "mxfp4":
        return 4.25 if "mxfp4" in method else 4.5
    if method in ("fp8", "fbgemm_fp8") or algorithm in ("fp8", "fp8_pb_wo"):
        return 8.0
    bits = found.get("bits", found.get("w_bit"))
    if method in ("awq", "gptq", "auto-round") and isinstance(bits, int):
        group = found.get("group_size", found.get("q_group_size", 128))
        return float(bits) + (20 / group if isinstance(group, int) and group > 0 else 0)
    if method == "compressed-tensors":
        return _compressed_bits(found)
    if method == "bitsandbytes":
        return 4.5 if found.get("load_in_4bit") else 8.0
    return 16.0


def _compressed_bits(found: dict[str, Any]) -> float:
    groups = found.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and isinstance(weights.get("num_bits"), int):
            size = weights.get("group_size")
            scale = (8 if weights.get("type") == "float" else 16) / size if isinstance(size, int) and size > 0 else 0
            return float(weights["num_bits"]) + scale
    return 16.0
