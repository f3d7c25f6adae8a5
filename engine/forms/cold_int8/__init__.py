"""Int8 with one float32 scale per token: K rows, V rows, K scales, V scales, padding.

On a device V lies by channels, [head_dim, tokens], which is how its products want it.
"""

from __future__ import annotations

import torch

from engine.forms._base import Form, floats, page_of
from engine.geometry import KVGeometry


class ColdInt8(Form):
    MOST = 127.0

    def __init__(self, *, by_channels: bool = False) -> None:
        self.by_channels = by_channels

    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.cold_page_bytes

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return geometry.cold_page_bytes - 2 * geometry.block_tokens * geometry.head_dim

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        both = torch.stack((k, v), 1)
        scale = both.abs().amax(-1).div_(self.MOST)
        rows = self._narrow(both.div_(scale.clamp_min(torch.finfo(torch.float32).tiny)[..., None]))
        values = rows[:, 1].mT if self.by_channels else rows[:, 1]
        return page_of(self.page_bytes(geometry), rows[:, 0], values, scale)

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, tokens, dim = len(pages), geometry.block_tokens, geometry.head_dim
        half = tokens * dim
        scale = floats(pages, 2 * half, 2 * tokens).view(n, 2, tokens, 1)
        k = self._widen(pages[:, :half]).view(n, tokens, dim)
        v = self._widen(pages[:, half : 2 * half])
        v = v.view(n, dim, tokens).mT if self.by_channels else v.view(n, tokens, dim)
        return k.mul_(scale[:, 0]), v * scale[:, 1]

    def _narrow(self, values: torch.Tensor) -> torch.Tensor:
        """Values of at most MOST to a byte each."""
        return values.round_().to(torch.int8)

    def _widen(self, data: torch.Tensor) -> torch.Tensor:
        """Those bytes, uint8 of any shape, as float32."""
        return data.view(torch.int8).float()


FORM = ColdInt8()
ON_DEVICE = ColdInt8(by_channels=True)
