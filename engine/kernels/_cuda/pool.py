"""One layer's keys and values on a device: bfloat16 pages, int8 pages with a scale per token, and representatives."""

from __future__ import annotations

from typing import Literal

import torch

from engine.geometry import KVGeometry

ABSENT = -1
Statistics = Literal["mean", "bounds"]


def cold_code(page: int) -> int:
    """What `place` says of cold page 0, 1, 2...: -2, -3, -4..."""
    return -2 - page


class PagedPool:
    """`hot` [pages, 2 (K, V), tokens, d]; `cold` int8 [pages, 2, tokens * d]: K by rows, V by channels (transposed).

    `scales` float32 [cold pages, 2, tokens]. `place` int32 [blocks, kv_heads]: a hot page, ABSENT, or `cold_code`.
    `reps` [blocks, kv_heads, subs, 1 or 2, d]: the mean key of each sub-block, or its lower and upper bound.
    Both lie in memory by head, then by block, so that one head's are near each other.
    """

    def __init__(
        self,
        geometry: KVGeometry,
        blocks: int,
        hot_pages: int,
        cold_pages: int = 0,
        statistics: Statistics = "mean",
        dtype: torch.dtype = torch.bfloat16,
        device: str | torch.device = "cuda",
    ) -> None:
        self.geometry = geometry
        self.statistics = statistics
        heads, tokens, dim = geometry.kv_heads, geometry.block_tokens, geometry.head_dim
        vectors = 1 if statistics == "mean" else 2
        self.hot = torch.zeros(hot_pages, 2, tokens, dim, dtype=dtype, device=device)
        self.cold = torch.zeros(cold_pages, 2, tokens * dim, dtype=torch.int8, device=device)
        self.scales = torch.zeros(cold_pages, 2, tokens, device=device)
        self.place = torch.full((heads, blocks), ABSENT, dtype=torch.int32, device=device).t()
        shape = (heads, blocks, geometry.subs_per_block, vectors, dim)
        self.reps = torch.zeros(shape, dtype=dtype, device=device).transpose(0, 1)

    @property
    def hot_page_bytes(self) -> int:
        return self.hot[0].numel() * self.hot.element_size()

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
        """k, v float32 [n, tokens, d] of cold pages int64 [n], by plain operators."""
        tokens, dim = self.geometry.block_tokens, self.geometry.head_dim
        k = self.cold[pages, 0].view(-1, tokens, dim).float() * self.scales[pages, 0, :, None]
        v = self.cold[pages, 1].view(-1, dim, tokens).float().transpose(1, 2) * self.scales[pages, 1, :, None]
        return k, v
