"""A small Llama with random weights, prompts for it, and a sink that keeps its rows by name."""

from __future__ import annotations

from typing import Any

from probes.generation import REQUEST_COLUMNS
from probes.model_rows import columns

LAYERS, KV_HEADS, HEAD = 3, 2, 16
TOKEN_BYTES = 2 * KV_HEADS * HEAD * 4
"""Keys and values of one token in one layer, float32."""


class Rows:
    """A sink that keeps rows by name."""

    def __init__(self, layers: int = LAYERS) -> None:
        self.steps: list[dict[str, float]] = []
        self.requests: list[dict[str, float]] = []
        self._names = columns(layers)

    def write_step(self, values: Any) -> None:
        self.steps.append(dict(zip(self._names, values, strict=True)))

    def write_request(self, values: Any) -> None:
        self.requests.append(dict(zip(REQUEST_COLUMNS, values, strict=True)))

    def write_event(self, event: Any) -> None:
        raise AssertionError(event)


def small(torch: Any) -> Any:
    """Return the model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD,
        vocab_size=97,
        pad_token_id=0,
        eos_token_id=None,
        bos_token_id=1,
    )
    return LlamaForCausalLM(config).eval()


def prompt(torch: Any, batch: int = 1, length: int = 20) -> Any:
    return torch.arange(batch * length).reshape(batch, length) % 96 + 1


def generate(model: Any, torch: Any, batch: int = 1, length: int = 20, new: int = 6, **options: Any) -> Any:
    return model.generate(
        prompt(torch, batch, length), max_new_tokens=new, min_new_tokens=new, do_sample=False, **options
    )
