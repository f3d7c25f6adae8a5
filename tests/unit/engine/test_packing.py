"""Packed weights say what plain ones say, for any number of tokens, and are left alone where they cannot be packed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.lab.recall.train import BatchAttend
from engine.model import Decoder
from engine.packing import Packed, pack
from engine.weights.random import random_weights
from tests.unit.engine.tiny import CONFIG, engine, greedy, prompt, run


@torch.inference_mode()
def logits(model: Decoder, count: int) -> torch.Tensor:
    return model.logits(model(torch.arange(count), torch.arange(count), BatchAttend(1)))


@pytest.mark.parametrize("changes", [{}, {"tied": False, "qkv_bias": True, "out_bias": True}])
@pytest.mark.parametrize("count", [1, 8, 33])
def test_packed_weights_say_the_same(changes: dict[str, bool], count: int) -> None:
    model = random_weights(replace(CONFIG, **changes), seed=3)
    plain = logits(model, count)
    if not pack(model):
        pytest.skip("this torch has no packed operators")
    assert isinstance(model.head, Packed)
    torch.testing.assert_close(logits(model, count), plain, rtol=1e-4, atol=1e-5)


def test_an_engine_answers_alike_with_packed_weights() -> None:
    made = engine()
    expected = greedy(made.model, prompt(60), 20)
    pack(made.model)
    request = made.submit(prompt(60), 20)
    run(made)
    assert request.generated == expected


def test_half_precision_stays_as_it_is() -> None:
    model = random_weights(CONFIG, seed=3, dtype=torch.bfloat16)
    assert not pack(model)
    assert model.head is None
