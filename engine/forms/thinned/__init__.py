"""A fixed number of a block's tokens as float32, the others dropped: a static structure, the same for any block.

K rows, V rows, then the slots they came from as int32, padding. Those tokens stay whose keys are least like the block's
mean key, a choice that needs no query and no position (kvpress's KeyDiff keeps such keys): what a block says over and
over goes first. A dropped token cannot come back, so such a page never becomes hot again.
"""

from __future__ import annotations

from math import lcm

import torch

from engine.forms._base import Form, floats, page_of
from engine.geometry import ALIGN, FLOAT_BYTES, KVGeometry

FAR = 2.0
"""Above any cosine: what was dropped already is dropped again first."""


class Thinned(Form):
    WHOLE = False

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
        return page_of(self.page_bytes(geometry), k.gather(1, rows), v.gather(1, rows), slots.int())

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept, n, dim = self.entries(geometry), len(pages), geometry.head_dim
        both = floats(pages, 0, 2 * kept * dim).view(n, 2, kept, dim)
        rows = self._slots(geometry, pages)[:, None, :, None].expand(both.shape)
        whole = both.new_zeros(n, 2, geometry.block_tokens, dim).scatter_(2, rows, both)
        return whole[:, 0], whole[:, 1]

    def kept(self, geometry: KVGeometry, pages: torch.Tensor) -> torch.Tensor:
        there = torch.zeros(len(pages), geometry.block_tokens, dtype=torch.bool, device=pages.device)
        return there.scatter_(1, self._slots(geometry, pages), True)

    def _slots(self, geometry: KVGeometry, pages: torch.Tensor) -> torch.Tensor:
        kept = self.entries(geometry)
        start = 2 * kept * geometry.head_dim * FLOAT_BYTES
        slots = pages[:, start : start + kept * FLOAT_BYTES].contiguous().view(torch.int32)
        return slots.long().clamp_(0, geometry.block_tokens - 1)


FORM = Thinned()
