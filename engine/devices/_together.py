"""Attention over keys and values put together in one piece, whatever their pages' forms and wherever they lie.

What a prompt runs on the CPU, and on a device where some pages lie in host memory. Exact over all stored entries; cold
ones are dequantised first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.timeline import Mark


class Together:
    """One layer's context: keys and values [kv_heads, end, d], and where tokens are absent, bool [kv_heads, end]."""

    def __init__(self, cache: KVCache, layer: int, ids: Tensor, end: int, mark: Mark | None = None) -> None:
        """``ids`` int64 [blocks] on the host; dequantising is marked ``decompress``."""
        self.shape, self.end = cache.geometry, end
        self.keys, self.values = (part.transpose(0, 1) for part in cache.read_dense(layer, ids, end, mark))
        absent = cache.absent(layer, ids, end)
        self.absent = None if absent is None else absent.T

    def attend(self, q: Tensor, start: int, window: int) -> Tensor:
        """q [n, q_heads, d] from token ``start``, each over the tokens up to its own -> the same shape."""
        shape, count = self.shape, len(q)
        # One row per query of the group, so that one kv head serves them in a single product (never enable_gqa on CPU).
        rows = (
            q.view(count, shape.kv_heads, shape.group, -1).permute(1, 2, 0, 3).reshape(shape.kv_heads, -1, q.shape[-1])
        )
        seen = visible(start, count, self.end, window, q.device).repeat(shape.group, 1)
        if self.absent is not None:
            seen = seen[None] & ~self.absent[:, None]
        out = F.scaled_dot_product_attention(rows[None], self.keys[None], self.values[None], attn_mask=seen)[0]
        turned = out.view(shape.kv_heads, shape.group, count, -1).permute(2, 0, 1, 3)
        return turned.reshape(count, shape.q_heads, -1)

    def mass(self, q: Tensor, start: int, window: int) -> Tensor:
        """Attention mass that queries from token ``start`` give to each full block before their last: float32
        [blocks, kv_heads].
        """
        shape = self.shape
        rows = q.view(len(q), shape.kv_heads, shape.group, -1)
        scores = torch.einsum("nhgd,htd->hgnt", rows, self.keys).float() * shape.head_dim**-0.5
        hidden = ~visible(start, len(q), self.end, window, q.device)
        if self.absent is not None:
            hidden = hidden | self.absent[:, None, None]
        mass = scores.masked_fill_(hidden, -torch.inf).softmax(-1).sum((1, 2))
        blocks = (start + len(q)) // shape.block_tokens
        per_block: Tensor = (
            mass[:, : blocks * shape.block_tokens].view(shape.kv_heads, blocks, shape.block_tokens).sum(2)
        )
        return per_block.T


@lru_cache(maxsize=4)
def visible(start: int, count: int, end: int, window: int, device: torch.device) -> Tensor:
    """Which of ``end`` tokens each of ``count`` from ``start`` sees, bool [count, end]; all layers of a chunk ask."""
    behind = torch.arange(start, start + count, device=device)[:, None] - torch.arange(end, device=device)
    return (behind >= 0) & (behind < (window or end))
