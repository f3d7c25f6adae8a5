"""One layer's keys and values on a device: pages at full precision, int8 pages, and representatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from engine.geometry import KVGeometry

ABSENT = -1
AWAY = -(1 << 30)
"""What `place` says of a page in host memory: it may be chosen, and must be fetched before it is read."""
Statistics = Literal["mean", "bounds"]


def cold_code(page: int) -> int:
    """What `place` says of cold page 0, 1, 2...: -2, -3, -4..."""
    return -2 - page


@dataclass
class PagedPool:
    """`hot` [pages, 2 (K, V), tokens, d]; `cold` int8, page p from p * `cold_unit`: K by rows, V by channels.

    `scales` float32, page p's K then V per token from p * `scale_unit`. `place` int32 [blocks, kv_heads]: a hot page,
    ABSENT, AWAY, or `cold_code`. `reps` [blocks, kv_heads, subs, 1 or 2, d]: the mean key of each sub-block, or its
    lower and upper bound. Both lie in memory by head, then by block, so that one head's are near each other.
    """

    geometry: KVGeometry
    hot: torch.Tensor
    cold: torch.Tensor
    scales: torch.Tensor
    place: torch.Tensor
    reps: torch.Tensor
    statistics: Statistics = "mean"
    cold_unit: int = 0
    scale_unit: int = 0

    def __post_init__(self) -> None:
        tokens, dim = self.geometry.block_tokens, self.geometry.head_dim
        self.cold_unit = self.cold_unit or 2 * tokens * dim
        self.scale_unit = self.scale_unit or 2 * tokens

    @classmethod
    def empty(
        cls,
        geometry: KVGeometry,
        blocks: int,
        hot_pages: int,
        cold_pages: int = 0,
        statistics: Statistics = "mean",
        dtype: torch.dtype = torch.bfloat16,
        device: str | torch.device = "cuda",
    ) -> PagedPool:
        """A pool with tensors of its own, all pages absent."""
        heads, tokens, dim = geometry.kv_heads, geometry.block_tokens, geometry.head_dim
        vectors = 1 if statistics == "mean" else 2
        shape = (heads, blocks, geometry.subs_per_block, vectors, dim)
        return cls(
            geometry,
            torch.zeros(hot_pages, 2, tokens, dim, dtype=dtype, device=device),
            torch.zeros(cold_pages, 2, tokens * dim, dtype=torch.int8, device=device),
            torch.zeros(cold_pages, 2, tokens, device=device),
            torch.full((heads, blocks), ABSENT, dtype=torch.int32, device=device).t(),
            torch.zeros(shape, dtype=dtype, device=device).transpose(0, 1),
            statistics,
        )

    @property
    def hot_page_bytes(self) -> int:
        return 2 * self.geometry.block_tokens * self.geometry.head_dim * self.hot.element_size()

    @property
    def cold_page_bytes(self) -> int:
        """The int8 rows and their scales."""
        return 2 * self.geometry.block_tokens * (self.geometry.head_dim + self.scales.element_size())

    @property
    def resident_bytes(self) -> int:
        """All tensors held, tables included."""
        held = (self.hot, self.cold, self.scales, self.place, self.reps)
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def summarise(self, blocks: torch.Tensor) -> None:
        """Representatives of full blocks `blocks` int64 [n] whose pages are hot: the torch twin of `append`."""
        shape = self.geometry
        keys = self.hot[self.place[blocks].long(), 0].float()
        slots = keys.view(len(blocks), shape.kv_heads, shape.subs_per_block, shape.rep_tokens, shape.head_dim)
        if self.statistics == "mean":
            self.reps[blocks] = slots.mean(3, keepdim=True).to(self.reps.dtype)
        else:
            self.reps[blocks] = torch.stack((slots.amin(3), slots.amax(3)), 3).to(self.reps.dtype)

    def read_cold(self, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v float32 [..., tokens, d] of cold pages int64 [...], by plain operators."""
        tokens, dim = self.geometry.block_tokens, self.geometry.head_dim
        inside = torch.arange(2 * tokens * dim, device=pages.device)
        rows = self.cold.view(-1)[(pages * self.cold_unit)[..., None] + inside].float()
        scale = self.scales.view(-1)[(pages * self.scale_unit)[..., None] + inside[: 2 * tokens]]
        k = rows[..., : tokens * dim].reshape(*pages.shape, tokens, dim) * scale[..., :tokens, None]
        v = rows[..., tokens * dim :].reshape(*pages.shape, dim, tokens).transpose(-1, -2)
        return k, v * scale[..., tokens:, None]
