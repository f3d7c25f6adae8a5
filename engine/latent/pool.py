"""Where latent rows of one layer lie: pages of rows, and of the small keys by which a sparse layer chooses them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.latent.shape import INDEX_SCALE_BYTES, LatentShape

MOST = 448.0
"""The largest e4m3 value."""


def eight_bit(x: Tensor) -> tuple[Tensor, Tensor]:
    """x float [..., d] as e4m3 values of the same shape, and their scales float32 [...]."""
    scale = x.float().abs().amax(-1) / MOST
    unit = scale.clamp_min(torch.finfo(torch.float32).tiny)
    return (x.float() / unit[..., None]).to(torch.float8_e4m3fn), scale


@dataclass
class LatentPool:
    """``rows`` [pages * page_tokens, width]; ``keys`` uint8 [pages, page_tokens * (index_dim + 4)].

    A page of keys is its values, then their scales, and belongs to the page of rows of the same number; without an
    index there are none.
    """

    shape: LatentShape
    rows: Tensor
    keys: Tensor

    @classmethod
    def empty(
        cls, shape: LatentShape, pages: int, dtype: torch.dtype = torch.bfloat16, device: str | torch.device = "cuda"
    ) -> LatentPool:
        return cls(
            shape,
            torch.zeros(pages * shape.page_tokens, shape.width, dtype=dtype, device=device),
            torch.zeros(pages, shape.page_tokens * shape.index_bytes, dtype=torch.uint8, device=device),
        )

    @property
    def resident_bytes(self) -> int:
        return self.rows.numel() * self.rows.element_size() + self.keys.numel()

    def store(self, at: Tensor, rows: Tensor, keys: Tensor | None = None) -> None:
        """rows [n, width] to row numbers int64 [n], and keys float [n, index_dim] beside them, in eight bits."""
        self.rows[at] = rows.to(self.rows.dtype)
        if keys is None:
            return
        tokens, dim = self.shape.page_tokens, self.shape.index_dim
        values, scales = eight_bit(keys)
        page, slot = at // tokens, at % tokens
        bytes_at = slot[:, None] * dim + torch.arange(dim, device=at.device)
        self.keys[page[:, None], bytes_at] = values.view(torch.uint8)
        scale_at = tokens * dim + slot[:, None] * INDEX_SCALE_BYTES + torch.arange(INDEX_SCALE_BYTES, device=at.device)
        self.keys[page[:, None], scale_at] = scales.contiguous().view(torch.uint8).view(len(at), INDEX_SCALE_BYTES)

    def key_values(self) -> tuple[Tensor, Tensor]:
        """All keys: e4m3 [pages, page_tokens, index_dim], and their scales float32 [pages, page_tokens]."""
        tokens, dim = self.shape.page_tokens, self.shape.index_dim
        split = tokens * dim
        values = self.keys[:, :split].view(torch.float8_e4m3fn).view(-1, tokens, dim)
        return values, self.keys[:, split:].contiguous().view(torch.float32)


class LatentBatch:
    """Requests of a step, in buffers that stay where they are: which rows there are for each.

    ``table`` int32 [requests, width]: pages; ``counts`` int32 [requests]: rows in them; ``own`` int32 [requests,
    window]: row numbers of the last tokens' own rows, of which the first ``own_counts`` are there.
    """

    def __init__(self, shape: LatentShape, requests: int, width: int, device: str | torch.device) -> None:
        self.shape, self.requests, self.width = shape, requests, width
        self.table = torch.zeros(requests, width, dtype=torch.int32, device=device)
        self.counts = torch.zeros(requests, dtype=torch.int32, device=device)
        self.own = torch.zeros(requests, shape.window, dtype=torch.int32, device=device)
        self.own_counts = torch.zeros(requests, dtype=torch.int32, device=device)

    @property
    def most_rows(self) -> int:
        return self.width * self.shape.page_tokens

    def row_numbers(self) -> tuple[Tensor, Tensor]:
        """Of every place in the table, int64 [requests, rows], and whether there is a row."""
        slots = torch.arange(self.shape.page_tokens, device=self.table.device)
        numbers = (self.table.long()[..., None] * self.shape.page_tokens + slots).flatten(1)
        there = torch.arange(numbers.shape[1], device=numbers.device) < self.counts[:, None]
        return numbers, there
