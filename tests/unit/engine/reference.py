"""The same weights in `transformers`: the engine's rival and its second oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.weights._base import Loaded
from engine.weights._names import HUGGINGFACE


def as_transformers(loaded: Loaded) -> Any:
    """A `LlamaForCausalLM` with the weights of a Llama-like model; skips the test where transformers is absent."""
    transformers = pytest.importorskip("transformers")
    config = loaded.config
    shape = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden,
        intermediate_size=config.ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.q_heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_context,
        rms_norm_eps=config.norm_eps,
        tie_word_embeddings=config.tied,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(shape).float().eval()
    model.load_state_dict(_renamed(loaded), strict=not config.tied)
    return model.requires_grad_(False)


def _renamed(loaded: Loaded) -> dict[str, torch.Tensor]:
    config, found = loaded.config, {}
    widths = {3: [config.q_heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2], 2: [config.ffn] * 2}
    for name, weight in loaded.model.state_dict().items():
        module, _, part = name.rpartition(".")
        number = module.split(".")[1] if module.startswith("layers.") else ""
        pattern = module.replace(f"layers.{number}.", "layers.{i}.") if number else module
        pieces = HUGGINGFACE[pattern].replace("{i}", number).split()
        rows = torch.split(weight, widths.get(len(pieces), [len(weight)]))
        found.update({f"{piece}.{part}": value for piece, value in zip(pieces, rows, strict=True)})
    return found
