"""Fills a decoder from tensors that carry other names and come in separate pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from engine.model import Decoder, ModelConfig
from engine.weights._base import checked, empty, frozen

Fetch = Callable[[str], Tensor]
"""A tensor by its name in the file; ValueError when there is none."""

HUGGINGFACE = {
    "embed": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "layers.{i}.attention_norm": "model.layers.{i}.input_layernorm",
    "layers.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm",
    "layers.{i}.attention.qkv": "model.layers.{i}.self_attn.q_proj model.layers.{i}.self_attn.k_proj "
    "model.layers.{i}.self_attn.v_proj",
    "layers.{i}.attention.out": "model.layers.{i}.self_attn.o_proj",
    "layers.{i}.attention.q_norm": "model.layers.{i}.self_attn.q_norm",
    "layers.{i}.attention.k_norm": "model.layers.{i}.self_attn.k_norm",
    "layers.{i}.ffn.gate_up": "model.layers.{i}.mlp.gate_proj model.layers.{i}.mlp.up_proj",
    "layers.{i}.ffn.down": "model.layers.{i}.mlp.down_proj",
}
GGUF = {
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "layers.{i}.attention_norm": "blk.{i}.attn_norm",
    "layers.{i}.ffn_norm": "blk.{i}.ffn_norm",
    "layers.{i}.attention.qkv": "blk.{i}.attn_q blk.{i}.attn_k blk.{i}.attn_v",
    "layers.{i}.attention.out": "blk.{i}.attn_output",
    "layers.{i}.attention.q_norm": "blk.{i}.attn_q_norm",
    "layers.{i}.attention.k_norm": "blk.{i}.attn_k_norm",
    "layers.{i}.ffn.gate_up": "blk.{i}.ffn_gate blk.{i}.ffn_up",
    "layers.{i}.ffn.down": "blk.{i}.ffn_down",
}
"""Our module -> the modules that hold its rows, one after another."""


def assemble(config: ModelConfig, names: Mapping[str, str], fetch: Fetch, device: str) -> Decoder:
    """Build the decoder piece by piece; ValueError names a tensor that is missing or does not fit `config`."""
    model = empty(config, device)
    for name, weight in model.named_parameters():
        module, _, part = name.rpartition(".")
        number = module.split(".")[1] if module.startswith("layers.") else ""
        pattern = module.replace(f"layers.{number}.", "layers.{i}.") if number else module
        pieces = [f"{piece}.{part}" for piece in names[pattern].replace("{i}", number).split()]
        _fill(weight.data, pieces, fetch, config)
    return frozen(model)


def _fill(weight: Tensor, pieces: list[str], fetch: Fetch, config: ModelConfig) -> None:
    rows = [len(weight)]
    if len(pieces) == 2:
        rows = [config.ffn] * 2
    elif len(pieces) == 3:
        rows = [config.q_heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2]
    for name, target in zip(pieces, torch.split(weight, rows), strict=True):
        target.copy_(checked(f"tensor {name}", fetch(name), target.shape))
