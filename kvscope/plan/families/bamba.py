"""Mamba 2 with attention in some layers or beside it: Bamba, Granite 4, Falcon-H1.

Falcon-H1 has both in every layer. ``mamba_d_head`` may be "auto": the inner width over the heads.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import AUTO, Layer, StatePart

MODEL_TYPES = ("bamba", "granitemoehybrid", "falcon_h1")
MEANS_NOTHING = ("mamba_chunk_size", "mamba_use_mlp", "mamba_norm_before_gate", "mamba_rms_norm", "mamba_expand")
STATE_WORDS = ("mamba", "mamba2", "linear_attention")


def layers(config: ModelConfig) -> list[Layer]:
    """By the list of the config, or by ``attn_layer_indices``."""
    if config.model_type == "falcon_h1":
        state = _parts(config)
        return [
            layer
            for at in range(config.layers)
            for layer in (_attention.full(config, at), Layer("mamba", state=state, stage=at))
        ]
    makers = {_attention.FULL_WORDS: _attention.full, STATE_WORDS: _mamba}
    for key in ("layer_types", "layers_block_type"):
        if config.has(key):
            return _attention.by_word(config, key, makers)
    places = config.get("attn_layer_indices") or []
    if not isinstance(places, list) or any(type(at) is not int or not 0 <= at < config.layers for at in places):
        raise config.refuse("attn_layer_indices", "a list of layers")
    return [(_attention.full if at in places else _mamba)(config, at) for at in range(config.layers)]


def _mamba(config: ModelConfig, stage: int) -> Layer:
    return Layer("mamba", state=_parts(config), stage=stage)


def _parts(config: ModelConfig) -> tuple[StatePart, ...]:
    heads = config.whole("mamba_n_heads")
    inner = config.maybe("mamba_d_ssm") or config.whole("mamba_expand") * config.whole("hidden_size")
    size = config.get("mamba_d_head")
    if size in (None, "auto"):
        size = inner // heads
    elif isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise config.refuse("mamba_d_head", "a positive whole number or auto")
    return _state.mamba2(
        heads,
        size,
        config.whole("mamba_d_state"),
        config.whole("mamba_n_groups"),
        config.whole("mamba_d_conv"),
        config.number_type("mamba_ssm_cache_dtype") or AUTO,
    )
