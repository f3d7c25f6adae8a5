"""What a model's weights weigh, and what of them a decode step reads.

By formula from the config: attention by the kind of each layer, gated MLPs, experts, embeddings. Norms, biases and
vision towers are left out (under 1 % of a text model). Where a checkpoint lies beside the config its own size is taken.

    read a step = total - embedding rows + head - experts nobody asked for
    experts touched by a batch of B tokens = E · (1 - (1 - k/E)^B)      even routing assumed, an upper figure
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvscope.errors import UsageError
from kvscope.plan.config import ModelConfig
from kvscope.plan.layer import Layer
from kvscope.plan.stored import weight_bits

WIDE_BITS = 16
NO_FORMULA = (
    "zamba2",
    "rwkv",
    "rwkv5",
    "rwkv6",
    "rwkv7",
    "recurrent_gemma",
    "nemotron-nas",
    "deci",
    "openelm",
    "gemma3n_text",
)
"""Types whose blocks share weights, or are no attention with an MLP behind it: not counted rather than miscounted."""
NO_MLP = ("mamba", "mamba2", "falcon_mamba")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", "moe_top_k")
DENSE = ("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner")
SHARED = (
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
    "share_expert_dim",
)  # fmt: skip
ONE_SHARED = ("llama4_text", "llama4")
"""Types that have one shared expert as wide as a routed one, and no key that says so."""
WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "intermediate_size")


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of the whole model (all ranks together), and the parameters behind them; ``how`` says where from.

    ``expert_bytes``: all routed experts of all layers; ``embedding_bytes``: rows looked up, not read whole.
    """

    total_bytes: int
    parameters: int
    active_parameters: int
    expert_bytes: int
    embedding_bytes: int
    experts: int
    experts_per_token: int
    how: str

    def touched(self, batch: float) -> float:
        """Share of the experts that a step of ``batch`` tokens reads, routing taken as even."""
        if not self.experts:
            return 1.0
        return float(1.0 - (1.0 - self.experts_per_token / self.experts) ** max(batch, 0.0))

    def read_bytes(self, batch: float = 1.0) -> int:
        """Bytes of weights that one step of ``batch`` tokens reads, over all ranks."""
        always = self.total_bytes - self.embedding_bytes - self.expert_bytes
        return round(always + self.expert_bytes * self.touched(batch))


def weigh(config: ModelConfig, layers: Iterable[Layer]) -> Weights:
    """Return the weights by formula; UsageError names the key without which they are not counted."""
    if config.model_type in NO_FORMULA:
        raise UsageError(f"{config.where}: no formula for the weights of model type {config.model_type!r}")
    silent = replace(config, read=set(), assumed=[])
    return _by_formula(silent, [layer for layer in layers if not layer.draft])


def measured(found: Weights | None, total_bytes: int, how: str) -> Weights:
    """Put a checkpoint's real size in place of the formula's total; its parts keep their shares."""
    if found is None or not found.total_bytes:
        return Weights(total_bytes, 0, 0, 0, 0, 0, 0, how)
    scale = total_bytes / found.total_bytes
    return replace(
        found,
        total_bytes=total_bytes,
        expert_bytes=round(found.expert_bytes * scale),
        embedding_bytes=round(found.embedding_bytes * scale),
        how=how,
    )


def _by_formula(config: ModelConfig, layers: list[Layer]) -> Weights:
    width, words = config.whole("hidden_size", "n_embd", "d_model"), config.whole("vocab_size", "padded_vocab_size")
    bits = weight_bits(config)
    attention = sum(_attention(config, layer, width) for layer in layers)
    experts, chosen = config.maybe(*EXPERTS, least=0) or 0, config.maybe(*CHOSEN) or 0
    expert = routed = shared = 0
    moe_layers = _moe_layers(config) if experts and chosen else 0
    dense_layers = _mlp_layers(config) - moe_layers
    if moe_layers:
        latent = config.maybe("moe_latent_size", "routed_expert_hidden_size")
        expert = _mlp(config, latent or width, config.whole(*WIDTH))
        routed = moe_layers * experts * expert
        shared = moe_layers * (_shared(config, width) + width * experts + (2 * width * latent if latent else 0))
    dense = dense_layers * _mlp(config, width, config.whole(*DENSE)) if dense_layers else 0
    if config.model_type == "longcat_flash":
        dense = 2 * config.layers * _mlp(config, width, config.whole("ffn_hidden_size"))
    table = words * width
    tied = bool(config.get("tie_word_embeddings"))
    tables = table if tied else 2 * table
    always = attention + shared + dense
    return Weights(
        total_bytes=round((always + routed) * bits / 8) + tables * WIDE_BITS // 8,
        parameters=always + routed + tables,
        active_parameters=always + moe_layers * chosen * expert + table,
        expert_bytes=round(routed * bits / 8),
        embedding_bytes=0 if tied else table * WIDE_BITS // 8,
        experts=experts if moe_layers else 0,
        experts_per_token=chosen if moe_layers else 0,
        how=f"by formula from the config, {bits:g} bits a number of a linear layer",
    )


def _attention(config: ModelConfig, layer: Layer, width: int) -> int:
    """Parameters of a layer's mixer."""
    if layer.kind == "none":
        return 0
    if layer.state and not layer.key_dim:
        return _recurrent(layer, width)
    if layer.latent:
        nope, value = config.whole("qk_nope_head_dim"), config.whole("v_head_dim")
        query = layer.query_heads * (nope + layer.rope)
        rank = config.maybe("q_lora_rank")
        asked = width * rank + rank * query if rank else width * query
        index = layer.index * (width + (rank or width) * (config.maybe("index_n_heads") or 0)) if layer.index else 0
        kept = width * (layer.latent + layer.rope) + layer.latent * layer.query_heads * (nope + value)
        return asked + kept + layer.query_heads * value * width + index
    if layer.kind in ("latent_window", "csa", "hca"):
        rank = config.whole("q_lora_rank")
        return (
            width * rank
            + rank * layer.query_heads * layer.key_dim
            + width * layer.key_dim
            + layer.query_heads * layer.key_dim * width
        )
    kept = 0 if layer.kind == "shared" else layer.kv_heads * (layer.key_dim + layer.value_dim)
    return width * (layer.query_heads * (layer.key_dim + layer.value_dim) + kept)


def _recurrent(layer: Layer, width: int) -> int:
    """Parameters of a recurrent mixer: what it projects in (a gate beside it), and out again."""
    state = next((part for part in layer.state if part.name == "recurrent"), None)
    convs = [part.heads * part.numbers for part in layer.state if part.columns]
    if state is None:
        return 4 * width * width
    if layer.kind == "mamba":
        inner = convs[0]
        small = inner * 2 * state.numbers if len(convs) == 1 else 0
        return width * (sum(convs) + inner + (state.heads if len(convs) > 1 else 0)) + small + inner * width
    if len(convs) > 1:
        return width * (sum(convs) + 2 * convs[-1] + 2 * state.heads)
    inner = state.heads * math.isqrt(state.numbers)
    return width * 5 * inner


def _mlp(config: ModelConfig, width: int, inner: int) -> int:
    """Parameters of an MLP: gated ones have three matrices."""
    plain = config.model_type in (
        "gpt2",
        "gpt_neox",
        "opt",
        "bloom",
        "mpt",
        "falcon",
        "phi",
        "gptj",
        "codegen",
        "starcoder2",
        "nemotron",
        "nemotron_h",
    )
    return (2 if plain else 3) * width * inner


def _blocks(config: ModelConfig) -> list[str] | None:
    """Words for blocks where MLPs and experts are layers of their own (Nemotron-H), else None."""
    if config.model_type != "nemotron_h":
        return None
    words = config.get("layers_block_type")
    pattern = config.get("hybrid_override_pattern")
    return (
        list(map(str, words)) if isinstance(words, list) else [{"-": "mlp", "E": "moe"}.get(one, "") for one in pattern]
    )


def _mlp_layers(config: ModelConfig) -> int:
    """Layers with an MLP or experts: all, or those that a list says."""
    if config.model_type in NO_MLP:
        return 0
    blocks = _blocks(config)
    return config.layers if blocks is None else sum(word in ("mlp", "moe") for word in blocks)


def _moe_layers(config: ModelConfig) -> int:
    """Layers with experts, by whatever words the config has for them."""
    blocks = _blocks(config)
    if blocks is not None:
        return blocks.count("moe")
    if config.has("mlp_layer_types"):
        return sum(word == "sparse" for word in config.per_layer("mlp_layer_types"))
    if isinstance(config.get("moe_layer_freq"), list):
        return sum(bool(mark) for mark in config.per_layer("moe_layer_freq"))
    first = config.maybe("first_k_dense_replace", "num_dense_layers", least=0) or 0
    step = (
        config.maybe("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "expert_layer_period") or 1
    )
    dense = config.get("mlp_only_layers")
    named = len(dense) if isinstance(dense, list) else 0
    return (config.layers - first) // step - named


def _shared(config: ModelConfig, width: int) -> int:
    """Parameters of the experts that every token takes."""
    inner = config.maybe(*SHARED, least=0)
    if inner is not None:
        return _mlp(config, width, inner)
    count = config.maybe("n_shared_experts", "num_shared_experts", least=0) or 0
    if config.model_type in ONE_SHARED:
        count = 1
    return _mlp(config, width, count * config.whole(*WIDTH)) if count else 0
