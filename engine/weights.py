"""Weights for the decoder: the shipped recall model, or random ones of a named shape to measure speed only."""

from __future__ import annotations

from importlib import resources

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from engine.model import Decoder, ModelConfig

PACKAGE = "engine.recall"
CONFIG_FILE, WEIGHTS_FILE = "recall.json", "recall.safetensors"


def load_shipped() -> tuple[ModelConfig, Decoder]:
    """The recall model that comes with the project: float32, on the CPU, no gradients."""
    config = ModelConfig.from_json(_read(CONFIG_FILE).decode())
    return config, from_safetensors(config, _read(WEIGHTS_FILE), WEIGHTS_FILE)


def from_safetensors(config: ModelConfig, data: bytes, name: str) -> Decoder:
    """Build a float32 decoder from a safetensors image; ValueError says which tensor does not fit `config`."""
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ValueError(f"{name}: not a readable safetensors file ({error})") from None
    model = Decoder(config)
    wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    found = {key: tuple(value.shape) for key, value in tensors.items()}
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            have, want = found.get(key, "nothing"), wanted.get(key, "nothing")
            raise ValueError(f"{name}: tensor {key} is {have}; its config expects {want}")
    model.load_state_dict({key: value.float() for key, value in tensors.items()})
    return frozen(model)


def random_weights(config: ModelConfig, seed: int) -> Decoder:
    """A decoder that says nothing sensible but costs what a trained one of its shape costs."""
    model = Decoder(config)
    model.init_weights(torch.Generator().manual_seed(seed))
    return frozen(model)


def frozen(model: Decoder) -> Decoder:
    return model.eval().requires_grad_(False)


def _read(name: str) -> bytes:
    try:
        return resources.files(PACKAGE).joinpath(name).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{PACKAGE} has no {name}: reinstall the project, or make it with `python -m engine.recall.train --out DIR`"
        ) from None
