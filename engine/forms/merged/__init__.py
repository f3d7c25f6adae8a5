"""One mean key and one mean value, float32, for all tokens of a block.

The mean key's score carries + log(number of tokens), so that the block keeps its mass in the softmax; that is the same
as reading the mean once for every token. Lossy for exact recall: one fact among many leaves no trace in a mean.
"""

from __future__ import annotations

import torch

from engine.forms._base import Form, floats, page_of
from engine.geometry import FLOAT_BYTES, KVGeometry


class Merged(Form):
    def entries(self, geometry: KVGeometry) -> int:
        return 1

    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.padded(2 * geometry.head_dim * FLOAT_BYTES)

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return self.page_bytes(geometry) - 2 * geometry.head_dim * FLOAT_BYTES

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return page_of(self.page_bytes(geometry), k.mean(1), v.mean(1))

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        means = floats(pages, 0, 2 * geometry.head_dim).view(len(pages), 2, 1, geometry.head_dim)
        both = means.expand(-1, -1, geometry.block_tokens, -1)
        return both[:, 0], both[:, 1]


FORM = Merged()
