"""What a KV form is: a way to hold one page's keys and values as bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod

import torch

from engine.geometry import KVGeometry


class Form(ABC):
    """A codec. NAME is the folder's name and CODE what a table of pages says: `engine.forms.get` fills them in.

    WHOLE: whether `decode` gives every token of the block; where not, `kept` says which, and the page stays cold.
    """

    NAME = ""
    CODE = 0
    WHOLE = True

    def entries(self, geometry: KVGeometry) -> int:
        """Entries that the page of a full block holds: 1 where one stands for all of its tokens."""
        return geometry.block_tokens

    @abstractmethod
    def page_bytes(self, geometry: KVGeometry) -> int: ...

    @abstractmethod
    def overhead_bytes(self, geometry: KVGeometry) -> int:
        """The part of a page that is neither keys nor values: scales and padding."""

    @abstractmethod
    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """k, v float32 [n, block_tokens, head_dim] -> uint8 [n, page_bytes], on the device they lie on."""

    @abstractmethod
    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 [n, page_bytes] -> k, v float32 [n, block_tokens, head_dim].

        Other bytes than `encode` made give some numbers or other, never an error: plain operators decode all of a list
        alike and then take what is of this form.
        """

    def kept(self, geometry: KVGeometry, pages: torch.Tensor) -> torch.Tensor:
        """Which tokens are there: bool [n, block_tokens]."""
        return torch.ones(len(pages), geometry.block_tokens, dtype=torch.bool, device=pages.device)


def page_of(size: int, *parts: torch.Tensor) -> torch.Tensor:
    """Pages uint8 [n, size]: the parts [n, ...] of any type one after another, then padding."""
    n = len(parts[0])
    body = [part.reshape(n, prod(part.shape[1:])).contiguous().view(torch.uint8) for part in parts]
    filled = sum(part.shape[1] for part in body)
    return torch.cat((*body, body[0].new_zeros(n, size - filled)), 1)


def floats(pages: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """float32 [n, count] from byte `start` of each page."""
    return pages[:, start : start + 4 * count].contiguous().view(torch.float32)
