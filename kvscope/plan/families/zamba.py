"""Zamba 2: Mamba 2 in every layer, and in "hybrid" ones shared attention, whose KV each use keeps for itself."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention, _state
from kvscope.plan.layer import AUTO, Layer

MODEL_TYPES = ("zamba2",)
MEANS_NOTHING = (
    "mamba_headdim", "attention_head_dim", "kv_channels", "use_shared_attention_adapter", "attention_hidden_size",
    "use_shared_mlp_adapter", "hybrid_layer_ids", "lora_rank", "mamba_expand",
    "state_size", "num_query_groups",
)  # fmt: skip


def layers(config: ModelConfig) -> list[Layer]:
    """A state everywhere, attention of twice the width where the list says hybrid."""
    width, heads = config.whole("hidden_size"), _attention.query_heads(config)
    size = config.maybe("attention_head_dim") or 2 * width // heads
    inner, count = config.whole("mamba_expand") * width, config.whole("n_mamba_heads")
    state = _state.mamba2(
        count,
        inner // count,
        config.whole("mamba_d_state", "state_size"),
        config.whole("mamba_ngroups"),
        config.whole("mamba_d_conv"),
        AUTO,
    )
    found = []
    for stage, word in enumerate(config.per_layer("layers_block_type")):
        if word not in ("mamba", "linear_attention", "hybrid"):
            raise config.refuse("layers_block_type", "mamba and hybrid")
        found.append(Layer("mamba", state=state, stage=stage))
        if word == "hybrid":
            found.append(Layer("full", _attention.kv_heads(config), size, size, query_heads=heads, stage=stage))
    return found
