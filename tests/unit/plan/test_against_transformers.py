"""What a plan counts is what transformers holds, for models whose attention fields are those of public configs.

Everything that does not touch the cache is made small (vocabulary, width, query heads, layers), the window too, so
that a short prompt fills it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.plan import geometry
from kvscope.plan.forms import KvForms

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOKENS, WINDOW, LAYERS = 200, 64, 6
MODELS = ("llama-3.1-8b", "qwen3-8b", "mistral-7b-v0.1", "gemma-3-27b", "gpt-oss-120b")


def small(name: str) -> dict[str, Any]:
    """The attention of a public config in a model that runs in a moment."""
    values = json.loads(Path(f"samples/configs/{name}.json").read_text())
    values = dict(values.get("text_config", values))
    values.setdefault("head_dim", values["hidden_size"] // values["num_attention_heads"])
    if values.get("sliding_window"):
        values["sliding_window"] = WINDOW
    if "layer_types" in values:
        values["layer_types"] = values["layer_types"][:LAYERS]
    if "num_local_experts" in values:
        values |= {"num_local_experts": 2, "num_experts_per_tok": 1}
    heads = values["num_key_value_heads"]
    return {
        **{key: value for key, value in values.items() if key not in ("_about", "architectures", "torch_dtype")},
        "hidden_size": 32,
        "intermediate_size": 32,
        "vocab_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
    }


def held_by_transformers(values: dict[str, Any]) -> int:
    """Bytes of every key and value tensor after one prompt."""
    options = {key: value for key, value in values.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(values["model_type"], **options)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        answer = model(torch.ones(1, TOKENS, dtype=torch.long), use_cache=True)
    cache = answer["cache"] if "cache" in answer else answer["past_key_values"]
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))


@pytest.mark.parametrize("name", MODELS)
def test_the_count_is_within_three_per_cent(name: str) -> None:
    values = small(name)
    counted = geometry(values).held(TOKENS, KvForms.named("bf16")).total_bytes
    assert counted == pytest.approx(held_by_transformers(values), rel=0.03)


def test_the_windows_of_a_hybrid_model_are_where_transformers_puts_them() -> None:
    values = {**small("qwen3-8b"), "sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 4}
    counted = geometry(values).held(TOKENS, KvForms.named("bf16")).total_bytes
    assert counted == pytest.approx(held_by_transformers(values), rel=0.03)
