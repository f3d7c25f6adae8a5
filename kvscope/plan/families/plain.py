"""Decoders whose layers all keep every token of every KV head: Llama and the many that follow it."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = (
    "apertus", "arcee", "aquila", "baichuan", "bailing_moe", "bailing_moe_v2", "bloom", "codegen", "cohere", "deepseek",
    "dots1", "ernie4_5", "ernie4_5_moe", "exaone", "flex_olmo", "gemma", "glm", "glm4", "glm4_moe", "glm4v_moe_text",
    "glm4v_text", "gpt2", "gpt_neox", "gptj", "granite", "granitemoe", "granitemoeshared", "helium",
    "hy_v3", "internlm", "internlm2", "internlm3", "jais2", "llama", "mimo", "minicpm", "minimax_m2",
    "nemotron", "olmo", "olmo2", "olmoe", "opt", "orion", "persimmon", "phi", "qwen", "seed_oss", "smollm3",
    "stablelm", "vaultgemma", "xverse", "yi",
)  # fmt: skip


def layers(config: ModelConfig) -> list[Layer]:
    """One full layer each."""
    if config.has("attn_type_list") and set(map(str, config.per_layer("attn_type_list"))) != {"1"}:
        raise config.refuse("attn_type_list", "1 for every layer: full attention")
    if config.get("use_sliding_window"):
        raise config.refuse("use_sliding_window", "false: this family keeps every token")
    return [_attention.full(config, stage) for stage in range(config.layers)]


MEANS_NOTHING = ("sliding_window", "max_window_layers", "layer_types")
"""Left in configs by the code they were written with."""
