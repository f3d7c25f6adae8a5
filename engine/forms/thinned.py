"""A fixed number of a block's tokens at full precision, the others dropped: a static structure, the same for any block.

K rows, V rows, then the slots they came from as int32, padding. Those tokens stay whose keys are least like the block's
mean key, a choice that needs no query and no position (kvpress's KeyDiff keeps such keys): what a block says over and
over goes first. A dropped token cannot come back, so such a page never becomes hot again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import torch

from engine.geometry import ALIGN, FLOAT_BYTES, KVGeometry

CODE = 8
FAR = 2.0
"""Above any cosine: what was dropped already is dropped again first."""


@dataclass(frozen=True)
class Thinned:
    NAME: str = "thinned"
    CODE: int = CODE
    WHOLE: bool = False

    def entries(self, geometry: KVGeometry) -> int:
        return min(geometry.entries, geometry.block_tokens)

    def page_bytes(self, geometry: KVGeometry) -> int:
        unit, kept = lcm(ALIGN, FLOAT_BYTES * geometry.head_dim), self.entries(geometry)
        return -(-kept * (2 * geometry.head_dim + 1) * FLOAT_BYTES // unit) * unit

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return self.page_bytes(geometry) - 2 * self.entries(geometry) * geometry.head_dim * FLOAT_BYTES

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        kept = self.entries(geometry)
        like = torch.cosine_similarity(k, k.mean(1, keepdim=True), -1).masked_fill(~k.any(-1), FAR)
        slots = like.argsort(dim=1, stable=True)[:, :kept].sort(1).values
        rows = slots[..., None].expand(-1, -1, geometry.head_dim)
        parts = (k.gather(1, rows), v.gather(1, rows), slots.int())
        pages = torch.zeros(len(k), self.page_bytes(geometry), dtype=torch.uint8)
        start = 0
        for part in parts:
            data = part.reshape(len(k), -1).contiguous().view(torch.uint8)
            pages[:, start : start + data.shape[1]] = data
            start += data.shape[1]
        return pages

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept, n, dim = self.entries(geometry), len(pages), geometry.head_dim
        body = 2 * kept * dim * FLOAT_BYTES
        both = pages[:, :body].contiguous().view(torch.float32).view(n, 2, kept, dim)
        rows = self._slots(geometry, pages)[:, None, :, None].expand(both.shape)
        whole = torch.zeros(n, 2, geometry.block_tokens, dim).scatter_(2, rows, both)
        return whole[:, 0], whole[:, 1]

    def kept(self, geometry: KVGeometry, pages: torch.Tensor) -> torch.Tensor:
        """Which tokens are there: bool [n, block_tokens]."""
        there = torch.zeros(len(pages), geometry.block_tokens, dtype=torch.bool)
        return there.scatter_(1, self._slots(geometry, pages), True)

    def _slots(self, geometry: KVGeometry, pages: torch.Tensor) -> torch.Tensor:
        kept = self.entries(geometry)
        start = 2 * kept * geometry.head_dim * FLOAT_BYTES
        return pages[:, start : start + kept * FLOAT_BYTES].contiguous().view(torch.int32).long()


FORM = Thinned()
