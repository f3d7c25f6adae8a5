"""Nemotron-H and Nemotron 3: Mamba 2, attention and MLP or expert blocks, a letter or a word each."""

from __future__ import annotations

from dataclasses import replace

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import AUTO, Layer

MODEL_TYPES = ("nemotron_h",)
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
MEANS_NOTHING = ("attention_head_dim",)


def layers(config: ModelConfig) -> list[Layer]:
    """One block a letter of ``hybrid_override_pattern``, or a word of ``layers_block_type``."""
    words: list[str]
    if config.has("layers_block_type"):
        words = config.per_layer("layers_block_type")
        config.read.add("hybrid_override_pattern")
    else:
        pattern = config.get("hybrid_override_pattern")
        if not isinstance(pattern, str) or set(pattern) - set(LETTERS) or len(pattern) != config.layers:
            raise config.refuse("hybrid_override_pattern", f"{config.layers} letters of {' '.join(LETTERS)}")
        words = [LETTERS[letter] for letter in pattern]
    drafts = (config.maybe("num_nextn_predict_layers", least=0) or 0) * _draft_attention(config)
    found = [_block(config, word, stage) for stage, word in enumerate(words)]
    return found + [replace(_block(config, "attention", config.layers - 1), draft=True) for _ in range(drafts)]


def _draft_attention(config: ModelConfig) -> int:
    """Attention layers of one draft module."""
    words = config.get("mtp_layers_block_type") or list(str(config.get("mtp_hybrid_override_pattern") or ""))
    if not isinstance(words, list):
        raise config.refuse("mtp_layers_block_type", "a list of blocks")
    return sum(LETTERS.get(str(word), str(word)) in _attention.FULL_WORDS for word in words)


def _block(config: ModelConfig, word: str, stage: int) -> Layer:
    if word in _attention.FULL_WORDS:
        layer = _attention.window(config, stage) if config.has("sliding_window") else _attention.full(config, stage)
        size = None if "head_dim" in config.values else config.maybe("attention_head_dim")
        return replace(layer, key_dim=size, value_dim=size) if size else layer
    if word in ("mlp", "moe"):
        return Layer("none", stage=stage)
    if word not in ("mamba", "mamba2", "linear_attention"):
        raise config.refuse("layers_block_type", "mamba, attention, mlp and moe")
    state = _state.mamba2(
        config.whole("mamba_num_heads"),
        config.whole("mamba_head_dim"),
        config.whole("ssm_state_size"),
        config.whole("n_groups", "mamba_n_groups"),
        config.whole("conv_kernel", "mamba_d_conv"),
        config.number_type("mamba_ssm_cache_dtype") or AUTO,
    )
    return Layer("mamba", state=state, stage=stage)
