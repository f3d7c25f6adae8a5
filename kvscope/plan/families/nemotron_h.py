"""Nemotron-H and Nemotron 3: Mamba 2, attention and MLP or expert blocks, a letter or a word each."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import Layer

MODEL_TYPES = ("nemotron_h",)
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
MEANS_NOTHING = ("mtp_layers_block_type", "mtp_hybrid_override_pattern")


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
    return [_block(config, word, stage) for stage, word in enumerate(words)]


def _block(config: ModelConfig, word: str, stage: int) -> Layer:
    if word in _attention.FULL_WORDS:
        return _attention.window(config, stage) if config.has("sliding_window") else _attention.full(config, stage)
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
        config.get("mamba_ssm_cache_dtype") or "float32",
    )
    return Layer("mamba", state=state, stage=stage)
