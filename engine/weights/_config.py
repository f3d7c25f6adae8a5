"""What a Hugging Face config.json says about the shape of a decoder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from engine.model import ModelConfig

QKV_BIAS, QK_NORM = {"Qwen2ForCausalLM"}, {"Qwen3ForCausalLM"}
ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "SmolLM3ForCausalLM", *sorted(QKV_BIAS | QK_NORM))


def config_of(values: Mapping[str, Any], where: str, has_head: bool) -> ModelConfig:
    """The decoder's config; ValueError names an architecture or feature that is not supported, and the nearest."""
    kind = (values.get("architectures") or ["none"])[0]
    if kind not in ARCHITECTURES:
        near = get_close_matches(str(kind), ARCHITECTURES, n=1, cutoff=0.0)
        raise ValueError(
            f"{where}: architecture {kind!r}; supported: {', '.join(ARCHITECTURES)}, nearest is {near[0]!r}"
        )
    for name, expected in (("hidden_act", "silu"), ("mlp_bias", False), ("quantization_config", None)):
        if (found := values.get(name, expected)) != expected:
            raise ValueError(f"{where}: {name} is {found!r}; supported: {expected!r}")
    try:
        return _read(values, kind, where, has_head)
    except KeyError as error:
        raise ValueError(f"{where}: config.json has no {error}") from None


def _read(values: Mapping[str, Any], kind: str, where: str, has_head: bool) -> ModelConfig:
    layers, q_heads = values["num_hidden_layers"], values["num_attention_heads"]
    head_dim = values.get("head_dim") or values["hidden_size"] // q_heads
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    biased = bool(values.get("attention_bias", False))
    return ModelConfig(
        vocab_size=values["vocab_size"],
        hidden=values["hidden_size"],
        layers=layers,
        q_heads=q_heads,
        kv_heads=values.get("num_key_value_heads") or q_heads,
        head_dim=head_dim,
        ffn=values["intermediate_size"],
        rope_base=float(rope.get("rope_theta", values.get("rope_theta", 10000.0))),
        norm_eps=values.get("rms_norm_eps", 1e-6),
        rope_layers=tuple(bool(on) for on in values.get("no_rope_layers") or [1] * layers),
        max_context=values["max_position_embeddings"],
        # What is stored decides: files of tied models leave the output matrix out, whatever the default of their kind.
        tied=not has_head,
        qkv_bias=biased or kind in QKV_BIAS,
        out_bias=biased,
        qk_norm=kind in QK_NORM,
        windows=_windows(values, layers),
        rope_divisors=_divisors(rope, values, head_dim // 2, where),
    )


def _windows(values: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    window = values.get("sliding_window")
    if not window or not values.get("use_sliding_window", True):
        return ()
    if kinds := values.get("layer_types"):
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    first = values.get("max_window_layers", 0)
    return tuple(window if layer >= first else 0 for layer in range(layers))


def _divisors(rope: Mapping[str, Any], values: Mapping[str, Any], pairs: int, where: str) -> tuple[float, ...]:
    """What a stretched context divides each rotation frequency by (llama3: as transformers does it)."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return ()
    if kind == "linear":
        return (float(rope["factor"]),) * pairs
    if kind != "llama3":
        raise ValueError(f"{where}: rope scaling {kind!r}; supported: default, linear, llama3")
    base = float(rope.get("rope_theta", values.get("rope_theta", 10000.0)))
    factor, trained = rope["factor"], rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    for pair in range(pairs):
        turns = trained * base ** (-pair / pairs) / (2 * math.pi)
        blend = min(1.0, max(0.0, (turns - low) / (high - low)))
        divisors.append(1.0 / (blend + (1.0 - blend) / factor))
    return tuple(divisors)
