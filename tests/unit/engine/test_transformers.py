"""SmolLM2 says here, token for token over 256 tokens, what it says in `transformers` with the same weights."""

from __future__ import annotations

import pytest
import torch

from engine.knobs import Knobs
from engine.llm import Engine
from engine.weights import open_model
from tests.unit.engine.reference import as_transformers
from tests.unit.engine.tiny import run

TOKENS, CONTEXT = 256, 512
QUESTIONS = ("Tell me about the history of Paris.", "What is a key-value cache?")


@pytest.mark.slow
def test_greedy_answers_equal_those_of_transformers() -> None:
    try:
        loaded = open_model("smollm2")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    theirs = as_transformers(loaded)
    pool = len(QUESTIONS) * CONTEXT * 8 * loaded.config.layers * loaded.config.kv_heads * loaded.config.head_dim
    made = Engine(loaded.config, loaded.model, Knobs(), pool_bytes=pool, max_context=CONTEXT, block_tokens=32)
    prompts = [tuple(loaded.tokenizer.chat([{"role": "user", "content": text}]).tokens) for text in QUESTIONS]
    requests = [made.submit(tokens, TOKENS) for tokens in prompts]
    run(made)
    for request in requests:
        given = torch.tensor([request.prompt])
        said = theirs.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False
        )
        assert request.generated == said[0, len(request.prompt) :].tolist()
