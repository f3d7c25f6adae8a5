"""What every source of weights gives, and how it says which texts it answers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.model import Decoder, ModelConfig
from engine.tokenizer import Tokenizer


@dataclass(frozen=True)
class Loaded:
    """A model ready to serve; `name` is what it is called in every view, `recall` whether it knows the recall task."""

    name: str
    config: ModelConfig
    model: Decoder
    tokenizer: Tokenizer
    recall: bool = False


class Source(Protocol):
    FORM: str
    """How a user writes it, for messages."""

    def claims(self, text: str) -> bool:
        """Whether this text is this source's to load."""
        ...

    def load(self, text: str, device: str) -> Loaded:
        """ValueError or FileNotFoundError says what is wrong with what `text` names."""
        ...


def frozen(model: Decoder) -> Decoder:
    return model.eval().requires_grad_(False)


def empty(config: ModelConfig, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Decoder:
    """A decoder whose weights are allocated and not set: initialising them costs more than loading them."""
    with torch.device("meta"):
        model = Decoder(config)
    return model.to(dtype).to_empty(device=device)


def checked(what: str, found: Tensor, shape: torch.Size) -> Tensor:
    """The tensor, if it fits; ValueError otherwise."""
    if found.shape != shape:
        raise ValueError(f"{what} is {tuple(found.shape)}; its config expects {tuple(shape)}")
    return found
