"""What a plan counts is what the built-in engine holds while it decodes, for the attention of five public models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvscope.plan import geometry
from kvscope.plan.forms import KvForms

torch = pytest.importorskip("torch")
pytest.importorskip("numba")

PROMPT, BLOCK, ROOM = 1000, 32, 1088
MODELS = ("llama-8b", "qwen3-8b", "llama-1b", "qwen2.5-0.5b", "smollm2-135m")


def held_by_engine(name: str) -> tuple[dict[str, Any], int, int]:
    """The config as its maker writes it, the tokens of a request that decodes, and all bytes resident meanwhile.

    What does not touch the cache is made small: width, vocabulary, query heads.
    """
    from engine.knobs import Knobs
    from engine.llm import Engine
    from engine.weights.random import random_weights, shape

    full = shape(name)
    config = replace(full, hidden=64, ffn=64, vocab_size=128, q_heads=full.kv_heads, max_context=ROOM)
    pool = 2 * 4 * full.layers * full.kv_heads * full.head_dim * ROOM
    engine = Engine(config, random_weights(config, 0), Knobs(), pool_bytes=pool, max_context=ROOM, block_tokens=BLOCK)
    request = engine.submit(tuple(number % 100 for number in range(PROMPT)), 8)
    with torch.inference_mode():
        while len(request.generated) < 4:
            engine.step()
    said = {
        "model_type": "llama", "num_hidden_layers": full.layers, "num_attention_heads": full.q_heads,
        "num_key_value_heads": full.kv_heads, "head_dim": full.head_dim, "hidden_size": full.hidden,
    }  # fmt: skip
    return said, request.length, engine.cache.resident_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_the_count_is_within_three_per_cent_of_all_that_is_resident(name: str) -> None:
    said, tokens, resident = held_by_engine(name)
    assert tokens > PROMPT
    assert geometry(said).held(tokens, KvForms.named("fp32")).total_bytes == pytest.approx(resident, rel=0.03)
