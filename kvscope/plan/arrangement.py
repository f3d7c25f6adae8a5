"""Which attention kind each layer is: read from what the config says, in the order in which the words overrule."""

from __future__ import annotations

from kvscope.errors import UsageError, nearest
from kvscope.plan.config import ModelConfig

WORDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "sliding_window_attention": "window",
    "chunked_attention": "window",
    "local_attention": "window",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "hybrid": "mamba",
    "conv": "conv",
    "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
}
RATIOS = {0: "latent_window", 4: "csa", 128: "hca"}
LETTERS = {"M": "mamba", "*": "full", "-": "none", "E": "none"}
GEMMA_PERIODS = {"gemma3_text": 6, "gemma3": 6, "gemma2": 2, "cohere2": 4}
"""Model types whose published config leaves its period of windows to the default: every n-th layer is full."""


def kinds_of(config: ModelConfig) -> tuple[str, ...]:
    """Return one kind a layer, names of files in ``kvscope.plan.kinds``; UsageError for a word nobody knows."""
    found = _kinds(config)
    if config.has("num_kv_shared_layers") and config.values["num_kv_shared_layers"]:
        shared = config.whole("num_kv_shared_layers")
        found = (*found[: config.layers - shared], *("shared",) * shared)
    return found


def _kinds(config: ModelConfig) -> tuple[str, ...]:
    if config.has("compress_ratios"):
        return tuple(_by_ratio(config, ratio) for ratio in config.per_layer("compress_ratios"))
    if config.has("kv_lora_rank"):
        return ("dsa" if config.has("index_topk") else "mla",) * config.layers
    if config.has("hybrid_override_pattern"):
        return tuple(_by_letter(config, letter) for letter in str(config.values["hybrid_override_pattern"]))
    for key in ("layer_types", "layers_block_type"):
        if config.has(key):
            return tuple(_by_word(config, key, word) for word in config.per_layer(key))
    return tuple(_by_period(config, layer) for layer in range(config.layers))


def _by_ratio(config: ModelConfig, ratio: object) -> str:
    if isinstance(ratio, bool) or not isinstance(ratio, int) or ratio not in RATIOS:
        raise UsageError(
            f"{config.where}: compress_ratios holds {ratio!r}; known ratios: {', '.join(map(str, RATIOS))}"
        )
    return RATIOS[ratio]


def _by_letter(config: ModelConfig, letter: str) -> str:
    if letter not in LETTERS:
        raise UsageError(f"{config.where}: hybrid_override_pattern holds {letter!r}; known: {', '.join(LETTERS)}")
    return LETTERS[letter]


def _by_word(config: ModelConfig, key: str, word: object) -> str:
    if not isinstance(word, str) or word not in WORDS:
        raise UsageError(f"{config.where}: {key} holds {word!r}{nearest(str(word), WORDS)}; known: {', '.join(WORDS)}")
    return WORDS[word]


def _by_period(config: ModelConfig, layer: int) -> str:
    """Models that say only how often a full layer comes, or from which layer on there is a window."""
    if config.has("full_attention_interval") and config.has("linear_num_value_heads"):
        return "full" if (layer + 1) % config.whole("full_attention_interval") == 0 else "linear"
    if config.has("attn_layer_period") and config.has("mamba_d_state"):
        return "full" if layer % config.whole("attn_layer_period") == config.values["attn_layer_offset"] else "mamba"
    if not config.has("sliding_window") or config.values.get("use_sliding_window") is False:
        return "full"
    if config.has("sliding_window_pattern") or config.model_type in GEMMA_PERIODS:
        period = config.values.get("sliding_window_pattern") or GEMMA_PERIODS[config.model_type]
        return "full" if (layer + 1) % int(period) == 0 else "window"
    if config.values.get("use_sliding_window") and config.has("max_window_layers"):
        return "window" if layer >= config.whole("max_window_layers") else "full"
    return "window"
