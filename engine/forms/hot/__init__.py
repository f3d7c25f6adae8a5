"""Full precision: K rows then V rows, in the cache's own type."""

from __future__ import annotations

import torch

from engine.forms._base import Form
from engine.geometry import KVGeometry


class Hot(Form):
    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.hot_page_bytes

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return 0

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        both = torch.stack((k, v), 1).to(getattr(torch, geometry.dtype))
        return both.view(len(k), -1).view(torch.uint8)

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (len(pages), 2, geometry.block_tokens, geometry.head_dim)
        both = pages.view(getattr(torch, geometry.dtype)).view(shape).float()
        return both[:, 0], both[:, 1]


FORM = Hot()
