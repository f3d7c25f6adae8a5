"""Over 256 tokens in float32 the engine says, token for token, what one causal pass over everything says.

The pass is given the engine's own answer: where each next token is the greedy choice after all before it, the answer is
the greedy answer. Ties go to the lowest id in both. Every other policy does so too where its shares keep everything at
full precision.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from engine import policies
from engine.knobs import Knobs
from engine.lab.recall import task
from engine.llm import Engine
from engine.model import Decoder, ModelConfig
from engine.weights import open_model
from tests.unit.engine.tiny import run

COUNT = 256
WHOLE = {"kept_share": "1.0", "hot_share": "1.0", "kernels": "block"}


@pytest.fixture(scope="module", autouse=True)
def one_thread():  # type: ignore[no-untyped-def]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recall_prompt() -> tuple[int, ...]:
    document = task.make_document(random.Random(3), 200)
    return task.prompt(document, next(iter(document.successor)))


@torch.inference_mode()
def choices(model: Decoder, tokens: tuple[int, ...]) -> list[int]:
    """The oracle: the greedy choice after each token, from one causal pass without a cache."""

    def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("nhd,mhd->hnm", q, k) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
        return torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v)

    hidden = model(torch.tensor(tokens), torch.arange(len(tokens)), attend)
    return [int(row.argmax()) for row in model.logits(hidden)]


@pytest.fixture(scope="module")
def shipped() -> tuple[ModelConfig, Decoder]:
    loaded = open_model("shipped", "cpu")
    return loaded.config, loaded.model


def made(config: ModelConfig, model: Decoder, **knobs: str) -> Engine:
    size = {"pool_bytes": 64 << 20, "max_context": 1024}
    return Engine(config, model, Knobs().with_text(knobs), **size)  # type: ignore[arg-type]


def check(config: ModelConfig, model: Decoder, policy: str, asked: tuple[int, ...]) -> None:
    engine = made(config, model, policy=policy, **WHOLE)
    request, beside = engine.submit(asked, COUNT), engine.submit(asked[: len(asked) // 2], COUNT // 4)
    run(engine)
    for answered in (request, beside):
        said = (*answered.prompt, *answered.generated)
        assert choices(model, said)[len(answered.prompt) - 1 : -1] == answered.generated


@pytest.mark.parametrize("name", policies.names())
def test_the_shipped_model_says_what_the_oracle_says(name: str, shipped: tuple[ModelConfig, Decoder]) -> None:
    check(*shipped, name, recall_prompt())
