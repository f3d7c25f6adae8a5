"""Attention layers as most configs describe them: heads, head size, window, and which layer has which."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvscope.errors import UsageError, nearest
from kvscope.plan.config import ModelConfig
from kvscope.plan.layer import Layer

FULL_WORDS = ("full_attention", "attention", "full", "global", "global_attention")
WINDOW_WORDS = ("sliding_attention", "sliding_window_attention", "local_attention", "sliding", "local", "swa")
CHUNK_WORDS = ("chunked_attention",)


def query_heads(config: ModelConfig) -> int:
    """Heads that ask."""
    return config.whole("num_attention_heads", "n_head", "n_heads", "num_heads")


def kv_heads(config: ModelConfig) -> int:
    """Heads that are kept. A model that names none keeps all of them (MHA), which is noted, where its class says so."""
    found = config.maybe("num_key_value_heads", "num_kv_heads", "n_head_kv")
    if found is None:
        found = query_heads(config)
        config.assume(f"num_key_value_heads is not in the config: {found}, as many as query heads (MHA)")
    if query_heads(config) % found:
        raise UsageError(
            f"{config.where}: {query_heads(config)} query heads cannot share {found} KV heads; expected a divisor"
        )
    return found


def head_dim(config: ModelConfig) -> int:
    """Size of a head; width over heads where none is said."""
    found = config.maybe("head_dim", "kv_channels")
    if found is not None:
        return found
    width, heads = config.whole("hidden_size", "n_embd", "d_model"), query_heads(config)
    if width % heads:
        raise UsageError(
            f"{config.where}: hidden_size {width} is no multiple of {heads} heads, and no head_dim says more"
        )
    return width // heads


def full(config: ModelConfig, stage: int) -> Layer:
    """A layer that keeps every token."""
    size = head_dim(config)
    value = config.maybe("v_head_dim") or size
    return Layer("full", kv_heads(config), size, value, query_heads=query_heads(config), stage=stage)


def window(config: ModelConfig, stage: int, tokens: int | None = None, kind: str = "window") -> Layer:
    """A layer that keeps the newest tokens; ``kind`` "chunk" where a whole chunk stays until the next begins."""
    size = head_dim(config)
    value = config.maybe("v_head_dim") or size
    tokens = tokens or config.whole("sliding_window")
    return Layer(kind, kv_heads(config), size, value, tokens, query_heads(config), stage=stage)


def by_word(
    config: ModelConfig, key: str, makers: Mapping[tuple[str, ...], Callable[[ModelConfig, int], Layer]]
) -> list[Layer]:
    """One layer a word of a list in the config; UsageError for a word that is not known."""
    known = {word: maker for words, maker in makers.items() for word in words}
    found = []
    for stage, word in enumerate(config.per_layer(key)):
        if not isinstance(word, str) or word not in known:
            raise UsageError(
                f"{config.where}: model type {config.model_type!r}: {key} holds {word!r:.60}"
                f"{nearest(str(word), known)}; known: {', '.join(known)}"
            )
        found.append(known[word](config, stage))
    return found


def full_or_window(config: ModelConfig) -> list[Layer]:
    """Full and windowed layers as ``layer_types`` says them."""
    return by_word(config, "layer_types", {FULL_WORDS: full, WINDOW_WORDS: window})


def every_nth_full(config: ModelConfig, period: int) -> list[Layer]:
    """Windows, but every n-th layer is full."""
    return [(full if (at + 1) % period == 0 else window)(config, at) for at in range(config.layers)]
