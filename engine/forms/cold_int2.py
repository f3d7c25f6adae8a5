"""Int2, four to a byte, between a lowest value and the next of four steps: keys by channel, values by token.

Keys have channels that are large for every token and values have not, hence the two directions (KIVI, arXiv
2402.02750). Byte i of a row holds dimensions i, i + d/4, i + d/2 and i + 3d/4, the first in its lowest bits. Layout:
K rows, V rows, lowest and step of each channel of K, lowest and step of each row of V, padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.geometry import FLOAT_BYTES, KVGeometry

CODE = 7
STEPS = 3.0
PER_BYTE = 4


@dataclass(frozen=True)
class ColdInt2:
    NAME: str = "cold_int2"
    CODE: int = CODE
    WHOLE: bool = True

    def entries(self, geometry: KVGeometry) -> int:
        return geometry.block_tokens

    def page_bytes(self, geometry: KVGeometry) -> int:
        beside = 2 * FLOAT_BYTES * (geometry.head_dim + geometry.block_tokens)
        return geometry.padded(self._body(geometry) + beside)

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return self.page_bytes(geometry) - self._body(geometry)

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n = len(k)
        parts, beside = [], []
        for rows, along in ((k, 1), (v, 2)):
            low, high = rows.aminmax(dim=along, keepdim=True)
            step = (high - low).div_(STEPS)
            levels = ((rows - low) / step.clamp_min(torch.finfo(torch.float32).tiny)).round_().to(torch.uint8)
            a, b, c, d = levels.chunk(PER_BYTE, -1)
            parts.append((a | b << 2 | c << 4 | d << 6).view(n, -1))
            beside += [one.contiguous().view(n, -1).view(torch.uint8) for one in (low, step)]
        body = torch.cat((*parts, *beside), 1)
        pages = torch.zeros(n, self.page_bytes(geometry), dtype=torch.uint8)
        pages[:, : body.shape[1]] = body
        return pages

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, tokens, dim, body = len(pages), geometry.block_tokens, geometry.head_dim, self._body(geometry)
        packed = pages[:, :body].view(n, 2 * tokens, dim // PER_BYTE)
        rows = torch.cat([packed >> shift & 3 for shift in (0, 2, 4, 6)], -1).float()
        widths = [dim, dim, tokens, tokens]
        beside = pages[:, body : body + FLOAT_BYTES * sum(widths)].contiguous().view(torch.float32)
        k_low, k_step, v_low, v_step = torch.split(beside, widths, 1)
        k = rows[:, :tokens] * k_step[:, None] + k_low[:, None]
        return k, rows[:, tokens:] * v_step[:, :, None] + v_low[:, :, None]

    def _body(self, geometry: KVGeometry) -> int:
        return 2 * geometry.block_tokens * geometry.head_dim // PER_BYTE


FORM = ColdInt2()
