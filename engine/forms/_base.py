"""What a KV form is: a way to hold one page's keys and values as bytes."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.geometry import KVGeometry


class Form(Protocol):
    """NAME is the file's name; CODE is what `page_form` holds: 0 none, 1 hot, 3 evicted, the others cold forms.

    WHOLE: whether `decode` gives every token of the block; where not, `kept` says which, and the page stays cold.
    """

    @property
    def NAME(self) -> str: ...

    @property
    def CODE(self) -> int: ...

    @property
    def WHOLE(self) -> bool: ...

    def entries(self, geometry: KVGeometry) -> int:
        """Entries that the page of a full block holds: 1 where one stands for all of its tokens."""
        ...

    def page_bytes(self, geometry: KVGeometry) -> int: ...

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        """The part of a page that is neither keys nor values: scales and padding."""
        ...

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """k, v float32 [n, block_tokens, head_dim] -> uint8 [n, page_bytes]."""
        ...

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 [n, page_bytes] -> k, v float32 [n, block_tokens, head_dim]."""
        ...
