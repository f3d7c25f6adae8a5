"""kvpress on top of an attached model: the bytes it saves are seen, its results stay as they are.

Opt-in, since kvpress brings many packages:

    pip install kvpress && pytest tests/optional/test_kvpress.py
"""

from __future__ import annotations

from typing import Any

import pytest

from probes.attach_transformers import attach
from probes.generation import REQUEST_COLUMNS
from probes.model_rows import columns

kvpress: Any = pytest.importorskip("kvpress", reason="kvpress is not installed", exc_type=ImportError)
pytestmark = pytest.mark.filterwarnings("ignore")
LAYERS, PROMPT, TOKEN_BYTES = 3, 64, 2 * 2 * 16 * 4


class Rows:
    """A sink that keeps rows by name."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.requests: list[dict[str, float]] = []

    def write_step(self, values: Any) -> None:
        self.steps.append(dict(zip(columns(LAYERS), values, strict=True)))

    def write_request(self, values: Any) -> None:
        self.requests.append(dict(zip(REQUEST_COLUMNS, values, strict=True)))

    def write_event(self, event: Any) -> None:
        raise AssertionError(event)


def test_the_bytes_a_press_saves_are_seen_and_its_result_is_its_own() -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=97,
        pad_token_id=0,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    prompt = torch.arange(PROMPT).reshape(1, PROMPT) % 96 + 1

    def generate() -> Any:
        with kvpress.KnormPress(compression_ratio=0.5)(model):
            return model.generate(prompt, max_new_tokens=5, min_new_tokens=5, do_sample=False)

    expected, rows = generate(), Rows()
    recorder = attach(model, sink=rows)
    assert torch.equal(generate(), expected)
    recorder.detach()
    assert rows.steps[0]["kv.resident_bytes"] == PROMPT // 2 * LAYERS * TOKEN_BYTES
    assert rows.steps[0]["kv.entries"] == PROMPT // 2
    assert rows.steps[0]["kv.used_tokens"] == PROMPT
    assert rows.steps[0]["kv.bytes_per_token_measured"] == LAYERS * TOKEN_BYTES / 2
    assert rows.requests[0]["request.kv_bytes"] == (PROMPT // 2 + 4) * LAYERS * TOKEN_BYTES
