"""Int4, two to a byte, with one float32 scale per row: K rows, V rows, K scales, V scales, padding.

Byte i of a row holds dimension i in its low half and i + head_dim / 2 in its high half, both as two's complement.
"""

from __future__ import annotations

import torch

from engine.forms._base import Form, floats, page_of
from engine.geometry import FLOAT_BYTES, KVGeometry

STEPS = 7.0


class ColdInt4(Form):
    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.padded(geometry.block_tokens * (geometry.head_dim + 2 * FLOAT_BYTES))

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return self.page_bytes(geometry) - geometry.block_tokens * geometry.head_dim

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        both = torch.cat((k, v), 1)
        scale = both.abs().amax(-1).div_(STEPS)
        rows = both.div_(scale.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).round_().to(torch.int16)
        low, high = rows.chunk(2, -1)
        return page_of(self.page_bytes(geometry), ((low & 15) | ((high & 15) << 4)).to(torch.uint8), scale)

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, tokens, dim = len(pages), geometry.block_tokens, geometry.head_dim
        body = tokens * dim
        packed = pages[:, :body].view(n, 2 * tokens, dim // 2)
        # A shift to the top and back extends the sign of the low half.
        halves = ((packed << 4).view(torch.int8) >> 4, packed.view(torch.int8) >> 4)
        rows = torch.cat(halves, -1).float().mul_(floats(pages, body, 2 * tokens).view(n, 2 * tokens, 1))
        return rows[:, :tokens], rows[:, tokens:]


FORM = ColdInt4()
