"""One mean key and one mean value, float32, for all tokens of a block.

The mean key's score carries + log(number of tokens), so that the block keeps its mass in the softmax; that is the same
as reading the mean once for every token. Lossy for exact recall: one fact among many leaves no trace in a mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.geometry import FLOAT_BYTES, KVGeometry

CODE = 6


@dataclass(frozen=True)
class Merged:
    NAME: str = "merged"
    CODE: int = CODE
    WHOLE: bool = True

    def entries(self, geometry: KVGeometry) -> int:
        return 1

    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.padded(2 * geometry.head_dim * FLOAT_BYTES)

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return self.page_bytes(geometry) - 2 * geometry.head_dim * FLOAT_BYTES

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        means = torch.cat((k.mean(1), v.mean(1)), 1).view(torch.uint8)
        pages = torch.zeros(len(k), self.page_bytes(geometry), dtype=torch.uint8)
        pages[:, : means.shape[1]] = means
        return pages

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        width = 2 * geometry.head_dim * FLOAT_BYTES
        means = pages[:, :width].contiguous().view(torch.float32).view(len(pages), 2, 1, geometry.head_dim)
        both = means.expand(-1, -1, geometry.block_tokens, -1)
        return both[:, 0], both[:, 1]


FORM = Merged()
