"""Int8 with one float32 scale per row: K rows, V rows, K scales, V scales, padding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.geometry import KVGeometry

CODE = 2


@dataclass(frozen=True)
class ColdInt8:
    NAME: str = "cold_int8"
    CODE: int = CODE
    WHOLE: bool = True

    def entries(self, geometry: KVGeometry) -> int:
        return geometry.block_tokens

    def page_bytes(self, geometry: KVGeometry) -> int:
        return geometry.cold_page_bytes

    def overhead_bytes(self, geometry: KVGeometry) -> int:
        return geometry.cold_page_bytes - 2 * geometry.block_tokens * geometry.head_dim

    def encode(self, geometry: KVGeometry, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        both = torch.cat((k, v), 1)
        scale = both.abs().amax(-1).div_(127.0)
        rows = both.div_(scale.clamp_min(torch.finfo(torch.float32).tiny)[..., None]).round_().to(torch.int8)
        body = rows.numel() // max(len(k), 1)
        pages = torch.zeros(len(k), geometry.cold_page_bytes, dtype=torch.uint8)
        pages[:, :body] = rows.view(len(k), -1).view(torch.uint8)
        pages[:, body : body + scale.shape[1] * 4] = scale.view(torch.uint8)
        return pages

    def decode(self, geometry: KVGeometry, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n, tokens, dim = len(pages), geometry.block_tokens, geometry.head_dim
        body = 2 * tokens * dim
        scale = pages[:, body : body + 8 * tokens].contiguous().view(torch.float32).view(n, 2 * tokens, 1)
        rows = pages[:, :body].view(torch.int8).view(n, 2 * tokens, dim).float().mul_(scale)
        return rows[:, :tokens], rows[:, tokens:]


FORM = ColdInt8()
