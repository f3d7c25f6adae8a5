"""Random weights of a named shape: they say nothing sensible and cost what trained ones cost, so they measure speed."""

from __future__ import annotations

import json
from difflib import get_close_matches
from importlib import resources
from typing import Any

import torch

from engine.model import Decoder, ModelConfig
from engine.tokenizer import ByteTokenizer
from engine.weights._base import Loaded, empty, frozen

PREFIX = "random:"
LABEL = "random weights"


class Random:
    FORM = "random:SHAPE"

    def claims(self, text: str) -> bool:
        return text.startswith(PREFIX)

    def load(self, text: str, device: str) -> Loaded:
        name = text.removeprefix(PREFIX)
        config = shape(name)
        model = random_weights(config, seed=0, device=device)
        return Loaded(f"{name}, {LABEL}", config, model, ByteTokenizer(config.vocab_size))


SOURCE = Random()


def shapes() -> dict[str, dict[str, Any]]:
    """Sizes of known models by name, as their makers publish them."""
    text = resources.files(__package__ or "engine.weights").joinpath("shapes.json").read_text()
    known: dict[str, dict[str, Any]] = json.loads(text)
    return known


def shape(name: str) -> ModelConfig:
    """The config of a named shape; ValueError names the nearest."""
    known = shapes()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f", did you mean {PREFIX + near[0]!r}?" if near else ""
        raise ValueError(f"model {PREFIX + name!r}: expected one of {', '.join(known)}{hint}")
    sizes = dict(known[name])
    sizes["rope_layers"] = (True,) * sizes["layers"]
    if window := sizes.pop("window", 0):
        sizes["windows"] = (window,) * sizes["layers"]
    return ModelConfig(**sizes)


def random_weights(config: ModelConfig, seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Decoder:
    """A decoder that costs what a trained one of its shape costs."""
    model = empty(config, device, dtype)
    model.init_weights(torch.Generator(device).manual_seed(seed))
    return frozen(model)
