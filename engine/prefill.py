"""Attention of a prompt chunk over everything stored so far, and the query-blind importance it reveals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kernels._base import Phases

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.residency import Residency

SAMPLED_QUERIES = 16


class PrefillAttend:
    """The model's ``attend`` for tokens [start, end) of one request.

    Attention is exact over all stored entries; cold ones are dequantised first, and ``phases.decompress`` says how
    long that took. Importance is sampled from the last queries of the chunk before ``sample_end``: where that is the
    end of the full prompt blocks, a question shorter than a block that follows a document never votes on what is kept.
    """

    def __init__(
        self,
        cache: KVCache,
        residency: Residency,
        table: list[int],
        span: tuple[int, int],
        sample_end: int,
        phases: Phases,
        windows: tuple[int, ...] = (),
    ) -> None:
        self.cache, self.residency, self.phases = cache, residency, phases
        self.start, self.end = span
        self.table = torch.tensor(table[: cache.geometry.blocks_for(self.end)])
        positions = torch.arange(self.start, self.end)
        tokens = cache.geometry.block_tokens
        self.block_ids, self.slots = self.table[positions // tokens], positions % tokens
        last = min(self.end, sample_end)
        self.sampled = range(max(self.start, last - SAMPLED_QUERIES), last)
        behind = positions[:, None] - torch.arange(self.end)[None]
        self.masks = {window: (behind >= 0) & (behind < (window or self.end)) for window in {0, *windows}}
        self.windows = windows or (0,) * cache.geometry.layers

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [N, q_heads, head_dim], k and v [N, kv_heads, head_dim] → [N, q_heads, head_dim]."""
        self.cache.write(layer, self.block_ids, self.slots, k, v)
        if self.residency.tier is not None:
            self.residency.tier.stream(layer, self.table)
        keys, values = self.cache.read_dense(layer, self.table, self.end, self.phases)
        shape = self.cache.geometry
        count, group = q.shape[0], shape.group
        # One row per query of the group, so that one kv head serves them in a single product (never enable_gqa on CPU).
        rows = q.view(count, shape.kv_heads, group, -1).permute(1, 2, 0, 3).reshape(shape.kv_heads, group * count, -1)
        mask = self.masks[self.windows[layer]].repeat(group, 1)
        absent = self.cache.absent(layer, self.table, self.end)
        seen = mask if absent is None else mask[None] & ~absent.T[:, None]
        keys, values = keys.transpose(0, 1), values.transpose(0, 1)
        out = F.scaled_dot_product_attention(rows[None], keys[None], values[None], attn_mask=seen)[0]
        if self.sampled:
            self._observe(layer, q, keys)
        return out.view(shape.kv_heads, group, count, -1).permute(2, 0, 1, 3).reshape(count, shape.q_heads, -1)

    def _observe(self, layer: int, q: Tensor, keys: Tensor) -> None:
        """Add the attention mass of the sampled queries, summed per block, to the importance of full blocks."""
        shape = self.cache.geometry
        first = self.sampled.start - self.start
        rows = q[first : first + len(self.sampled)].view(len(self.sampled), shape.kv_heads, shape.group, -1)
        scores = torch.einsum("nhgd,htd->hgnt", rows, keys) * shape.head_dim**-0.5
        hidden = ~self.masks[self.windows[layer]][first : first + len(self.sampled)]
        mass = scores.masked_fill_(hidden, -torch.inf).softmax(-1).sum((1, 2))
        blocks = self.sampled.stop // shape.block_tokens
        per_block = mass[:, : blocks * shape.block_tokens].view(shape.kv_heads, blocks, shape.block_tokens).sum(2)
        self.residency.observe(layer, self.table[:blocks], per_block.T)
