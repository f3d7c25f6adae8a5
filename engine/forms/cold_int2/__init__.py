"""Int2, four to a byte, between a lowest value and the next of four steps: keys by channel, values by token.

Keys have channels that are large for every token and values have not, hence the two directions (KIVI, arXiv
2402.02750). Byte i of a row holds dimensions i, i + d/4, i + d/2 and i + 3d/4, the first in its lowest bits. Layout:
K rows, V rows, lowest and step of each channel of K, lowest and step of each row of V, padding.
"""

from __future__ import annotations

import torch

from engine.forms._base import Form, floats, page_of
from engine.geometry import FLOAT_BYTES, KVGeometry

STEPS = 3.0
PER_BYTE = 4


class ColdInt2(Form):
    def page_bytes(self, geometry: KVGeometry) -> int:
        beside = 2 * FLOAT_BYTES * (geometry.head_dim + geometry.block_tokens)
        return geometry.padded(self._body(geometry) + beside)

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return self.page_bytes(geometry) - self._body(geometry)

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        parts, beside = [], []
        for rows, along in ((k, 1), (v, 2)):
            low, high = rows.aminmax(dim=along, keepdim=True)
            step = (high - low).div_(STEPS)
            levels = ((rows - low) / step.clamp_min(torch.finfo(torch.float32).tiny)).round_().to(torch.uint8)
            a, b, c, d = levels.chunk(PER_BYTE, -1)
            parts.append(a | b << 2 | c << 4 | d << 6)
            beside += [low, step]
        return page_of(self.page_bytes(geometry), *parts, *beside)

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, tokens, dim, body = len(pages), geometry.block_tokens, geometry.head_dim, self._body(geometry)
        packed = pages[:, :body].view(n, 2 * tokens, dim // PER_BYTE)
        rows = torch.cat([packed >> shift & 3 for shift in (0, 2, 4, 6)], -1).float()
        widths = [dim, dim, tokens, tokens]
        k_low, k_step, v_low, v_step = torch.split(floats(pages, body, sum(widths)), widths, 1)
        k = rows[:, :tokens] * k_step[:, None] + k_low[:, None]
        return k, rows[:, tokens:] * v_step[:, :, None] + v_low[:, :, None]

    def _body(self, geometry: KVGeometry) -> int:
        return 2 * geometry.block_tokens * geometry.head_dim // PER_BYTE


FORM = ColdInt2()
