"""RWKV: version 4 keeps five vectors a layer, 5 to 7 a matrix a head of 64 and the token before for two shifts."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.layer import Layer, StatePart

MODEL_TYPES = ("rwkv", "rwkv5", "rwkv6", "rwkv7")
HEAD = 64
MEANS_NOTHING = ("decay_low_rank_dim", "gate_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "value_dim")


def layers(config: ModelConfig) -> list[Layer]:
    """The same state in every layer."""
    width = config.whole("hidden_size")
    if config.model_type == "rwkv":
        inner = config.maybe("attention_hidden_size") or width
        state = (StatePart("shift", 1, 2 * width), StatePart("recurrent", 1, 3 * inner, dtype="fp32"))
    else:
        size = config.maybe("head_dim", "head_size") or HEAD
        inner = config.maybe("attention_hidden_size", "dim_att") or width
        if inner % size:
            raise config.refuse("head_dim", f"a divisor of the width {inner}")
        state = (StatePart("recurrent", inner // size, size * size, dtype="fp32"), StatePart("shift", 1, 2 * width))
    return [Layer("rwkv", state=state, stage=stage) for stage in range(config.layers)]
