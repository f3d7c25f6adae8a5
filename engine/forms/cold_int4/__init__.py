"""Int4, two to a byte, with one float32 scale per row: K rows, V rows, K scales, V scales, padding.

Byte i of a row holds dimension i in its low half and i + head_dim / 2 in its high half, both as two's complement. On a
device V lies by channels, [head_dim, tokens / 2], and byte i of a channel holds token i and token i + tokens / 2.
"""

from __future__ import annotations

import torch

from engine.forms._base import Form, floats, page_of
from engine.geometry import FLOAT_BYTES, KVGeometry

STEPS = 7.0


class ColdInt4(Form):
    def __init__(self, *, by_channels: bool = False) -> None:
        self.by_channels = by_channels

    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.padded(geometry.block_tokens * (geometry.head_dim + 2 * FLOAT_BYTES))

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return self.page_bytes(geometry) - geometry.block_tokens * geometry.head_dim

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        both = torch.stack((k, v), 1)
        scale = both.abs().amax(-1).div_(STEPS)
        rows = both.div_(scale.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).round_().to(torch.int16)
        values = rows[:, 1].mT if self.by_channels else rows[:, 1]
        return page_of(self.page_bytes(geometry), _packed(rows[:, 0]), _packed(values), scale)

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, tokens, dim = len(pages), geometry.block_tokens, geometry.head_dim
        half = tokens * dim // 2
        scale = floats(pages, 2 * half, 2 * tokens).view(n, 2, tokens, 1)
        k = _unpacked(pages[:, :half].view(n, tokens, dim // 2))
        values = pages[:, half : 2 * half]
        if self.by_channels:
            v = _unpacked(values.view(n, dim, tokens // 2)).mT
        else:
            v = _unpacked(values.view(n, tokens, dim // 2))
        return k * scale[:, 0], v * scale[:, 1]


def _packed(rows: torch.Tensor) -> torch.Tensor:
    """int16 [..., n] of at most four bits as uint8 [..., n / 2]: the first half of a row below the second."""
    low, high = rows.chunk(2, -1)
    return ((low & 15) | ((high & 15) << 4)).to(torch.uint8)


def _unpacked(data: torch.Tensor) -> torch.Tensor:
    """Those bytes as float32 [..., n]; a shift to the top and back extends the sign of the low half."""
    return torch.cat(((data << 4).view(torch.int8) >> 4, data.view(torch.int8) >> 4), -1).float()


FORM = ColdInt4()
ON_DEVICE = ColdInt4(by_channels=True)
