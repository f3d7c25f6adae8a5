"""What a model's weights weigh, and what of them a decode step reads.

By formula from the config: attention by the kind of each layer, gated MLPs, experts, embeddings. Norms, biases and
vision towers are left out (under 1 % of a text model). Where a checkpoint lies beside the config its own size is taken.

    read a step = total - embedding rows + head - experts nobody asked for
    experts touched by a batch of B tokens = E · (1 - (1 - k/E)^B)      even routing assumed, an upper figure
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvscope.errors import UsageError
from kvscope.plan.config import ModelConfig
from kvscope.plan.layer import Layer
from kvscope.plan.stored import weight_bits

WIDE_BITS = 16
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", "moe_top_k")
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


def weigh(config: ModelConfig, layers: Iterable[Layer]) -> Weights | None:
    """Return the weights by formula, or None where the config does not say enough."""
    try:
        return _by_formula(config, [layer for layer in layers if not layer.draft])
    except UsageError:
        return None


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
    moe_layers = _moe_layers(config, layers) if experts and chosen else 0
    dense_layers = _mlp_layers(config, layers) - moe_layers
    if moe_layers:
        expert = _mlp(config, width, config.whole(*WIDTH))
        routed = moe_layers * experts * expert
        shared = moe_layers * (_shared(config, width) + width * experts)
    dense = (
        dense_layers * _mlp(config, width, config.whole("intermediate_size", "ffn_hidden_size", "n_inner"))
        if dense_layers
        else 0
    )
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
        inputs = sum(part.heads * part.numbers for part in layer.state if part.columns)
        heads = max(part.heads for part in layer.state)
        inner = next((part.heads * part.numbers for part in reversed(layer.state) if part.columns), width)
        return width * (inputs + 2 * inner + 2 * heads)
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


def _mlp_layers(config: ModelConfig, layers: list[Layer]) -> int:
    """Layers with an MLP or experts: all, or those that a pattern says."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return sum(letter in "-E" for letter in pattern)
    return config.layers


def _moe_layers(config: ModelConfig, layers: list[Layer]) -> int:
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return pattern.count("E")
    if config.has("mlp_layer_types"):
        return sum(word == "sparse" for word in config.per_layer("mlp_layer_types"))
    if isinstance(config.get("moe_layer_freq"), list):
        return sum(bool(mark) for mark in config.per_layer("moe_layer_freq"))
    first = config.maybe("first_k_dense_replace", least=0) or 0
    step = (
        config.maybe("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "expert_layer_period") or 1
    )
    dense = config.get("mlp_only_layers")
    named = len(dense) if isinstance(dense, list) else 0
    return (config.layers - first) // step - named


def _shared(config: ModelConfig, width: int) -> int:
    """Parameters of the experts that every token takes."""
    inner = config.maybe(
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"
    )
    if inner is not None:
        return _mlp(config, width, inner)
    count = config.maybe("n_shared_experts", "num_shared_experts", least=0) or 0
    return _mlp(config, width, count * config.whole(*WIDTH)) if count else 0
