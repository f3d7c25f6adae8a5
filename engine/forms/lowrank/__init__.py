"""Low-rank factors in int8: K ≈ A S B with A [tokens, r], B [r, head_dim] and r scales S, and V alike.

Scores need no reconstruction: q·Kᵀ = ((q·Bᵀ) S)·Aᵀ is fewer products than q·Kᵀ itself. The factors are those of least
square error (the leading eigenvectors of K·Kᵀ). Rotary embedding spreads keys over more components: a layer that
rotates loses more at the same rank than one that does not. Layout: B of K, B of V, A of K, A of V, S of K, S of V; on a
device the factors of V are turned, [head_dim, r] and [r, tokens], so that products read along rows.
"""

from __future__ import annotations

import torch

from engine.forms._base import Form, page_of
from engine.geometry import FLOAT_BYTES, KVGeometry


class LowRank(Form):
    def __init__(self, *, turned: bool = False) -> None:
        self.turned = turned

    def page_bytes(self, geometry: KVGeometry) -> int:
        size = geometry.block_tokens + geometry.head_dim + FLOAT_BYTES
        return geometry.padded(2 * geometry.components * size)

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        factors = 2 * geometry.components * (geometry.block_tokens + geometry.head_dim)
        return self.page_bytes(geometry) - factors

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n, both = len(k), torch.cat((k, v))
        vectors = torch.linalg.eigh(both @ both.mT).eigenvectors
        a = vectors[:, :, -geometry.components :]
        b = a.mT @ both
        tiny = torch.finfo(torch.float32).tiny
        a_step = a.abs().amax(1, keepdim=True).div_(127.0).clamp_min(tiny)
        b_step = b.abs().amax(2, keepdim=True).div_(127.0)
        rows = (a / a_step).round_().to(torch.int8)
        columns = (b / b_step.clamp_min(tiny)).round_().to(torch.int8)
        scale = a_step[:, 0] * b_step[:, :, 0]
        b_v, a_v = (columns[n:].mT, rows[n:].mT) if self.turned else (columns[n:], rows[n:])
        parts = (columns[:n], b_v, rows[:n], a_v, scale[:n], scale[n:])
        return page_of(self.page_bytes(geometry), *parts)

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, tokens, dim, rank = len(pages), geometry.block_tokens, geometry.head_dim, geometry.components
        split = torch.split(pages[:, : 2 * rank * (tokens + dim + FLOAT_BYTES)], self._widths(geometry), 1)
        factors = [part.view(torch.int8).float() for part in split[:4]]
        b_k, a_k = factors[0].view(n, rank, dim), factors[2].view(n, tokens, rank)
        if self.turned:
            b_v, a_v = factors[1].view(n, dim, rank).mT, factors[3].view(n, rank, tokens).mT
        else:
            b_v, a_v = factors[1].view(n, rank, dim), factors[3].view(n, tokens, rank)
        s_k, s_v = (part.contiguous().view(torch.float32)[:, :, None] for part in split[4:])
        return a_k @ (b_k * s_k), a_v @ (b_v * s_v)

    def _widths(self, geometry: KVGeometry) -> list[int]:
        rank = geometry.components
        return [rank * geometry.head_dim] * 2 + [rank * geometry.block_tokens] * 2 + [rank * FLOAT_BYTES] * 2


FORM = LowRank()
ON_DEVICE = LowRank(turned=True)
