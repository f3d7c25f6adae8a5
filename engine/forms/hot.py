"""Full precision: K rows then V rows, float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.geometry import KVGeometry

CODE = 1


@dataclass(frozen=True)
class Hot:
    NAME: str = "hot"
    CODE: int = CODE
    WHOLE: bool = True

    def entries(self, geometry: KVGeometry) -> int:
        return geometry.block_tokens

    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.hot_page_bytes

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return 0

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.stack((k, v), 1).view(len(k), -1).view(torch.uint8)

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = pages.view(torch.float32).view(len(pages), 2, geometry.block_tokens, geometry.head_dim)
        return both[:, 0], both[:, 1]


FORM = Hot()
