"""Models of states alone: Mamba 1 and 2, Falcon Mamba; and Griffin (RecurrentGemma), with windows between."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import AUTO, Layer, StatePart

MODEL_TYPES = ("mamba", "mamba2", "falcon_mamba", "recurrent_gemma")
MEANS_NOTHING = ("mamba_rms_eps",)


def layers(config: ModelConfig) -> list[Layer]:
    """A state a layer."""
    if config.model_type == "recurrent_gemma":
        return _griffin(config)
    columns, state = config.whole("conv_kernel"), config.whole("state_size")
    if config.model_type == "mamba2":
        heads, size, groups = config.whole("num_heads"), config.whole("head_dim"), config.whole("n_groups")
        parts = _state.mamba2(heads, size, state, groups, columns, AUTO)
    else:
        inner = config.maybe("intermediate_size") or config.whole("expand") * config.whole("hidden_size")
        parts = _state.mamba1(inner, state, columns, AUTO)
    return [Layer("mamba", state=parts, stage=stage) for stage in range(config.layers)]


def _griffin(config: ModelConfig) -> list[Layer]:
    words = config.get("block_types") or ["recurrent", "recurrent", "attention"]
    if not isinstance(words, list | tuple) or not words or set(map(str, words)) - {"recurrent", "attention"}:
        raise config.refuse("block_types", "recurrent and attention")
    width = config.maybe("lru_width") or config.whole("hidden_size")
    state = (StatePart("recurrent", width, 1, dtype="fp32"), StatePart("conv", width, 1, config.whole("conv1d_width")))
    found = []
    for stage in range(config.layers):
        if words[stage % len(words)] == "attention":
            found.append(_attention.window(config, stage, config.whole("attention_window_size")))
        else:
            found.append(Layer("mamba", state=state, stage=stage))
    return found
