"""Jamba: Mamba 1 in most layers, full attention every ``attn_layer_period``."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import AUTO, Layer

MODEL_TYPES = ("jamba",)


def layers(config: ModelConfig) -> list[Layer]:
    """Full where the period says so."""
    period, offset = config.whole("attn_layer_period"), config.whole("attn_layer_offset", least=0)
    inner = config.whole("mamba_expand") * config.whole("hidden_size")
    config.read.add("mamba_dt_rank")
    state = _state.mamba1(inner, config.whole("mamba_d_state"), config.whole("mamba_d_conv"), AUTO)
    return [
        _attention.full(config, at) if at % period == offset else Layer("mamba", state=state, stage=at)
        for at in range(config.layers)
    ]
