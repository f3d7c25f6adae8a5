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
        shape, group = self.shape, self.shape.group
        mask = self._hidden(q, start, window)
        if len(q) == 1 and self.absent is None:
            # A group's heads are rows of one product: there is no other query whose place they would take.
            rows, keys, values = self._by_head(q)[:, 0][None], self.keys[None], self.values[None]
            out = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask)
            return out.reshape(1, shape.q_heads, -1)
        rows = self._by_head(q).transpose(1, 2)
        # A group's heads look at the same rows: they are not copied for each (and enable_gqa would be slower).
        keys, values = (part[:, None].expand(-1, group, -1, -1) for part in (self.keys, self.values))
        out = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask)
        return out.permute(2, 0, 1, 3).reshape(len(q), shape.q_heads, -1)

    def mass(self, q: Tensor, start: int, window: int) -> Tensor:
        """Attention mass that queries from token ``start`` give to each full block before their last: float32
        [blocks, kv_heads].
        """
        shape = self.shape
        scores = torch.einsum("hngd,htd->hgnt", self._by_head(q), self.keys).float() * shape.head_dim**-0.5
        scores += self._hidden(q, start, window)
        mass = scores.softmax(-1).sum((1, 2))
        blocks = (start + len(q)) // shape.block_tokens
        per_block: Tensor = (
            mass[:, : blocks * shape.block_tokens].view(shape.kv_heads, blocks, shape.block_tokens).sum(2)
        )
        return per_block.T

    def _by_head(self, q: Tensor) -> Tensor:
        """[kv_heads, n, group, d]."""
        return q.view(len(q), self.shape.kv_heads, self.shape.group, -1).transpose(0, 1)

    def _hidden(self, q: Tensor, start: int, window: int) -> Tensor:
        """As `hidden`, and [kv_heads, 1, n, end] where tokens are absent."""
        mask = hidden(start, len(q), self.end, window, q.dtype, q.device)
        return mask if self.absent is None else mask.masked_fill(self.absent[:, None, None], -torch.inf)


@lru_cache(maxsize=2)
def hidden(start: int, count: int, end: int, window: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What is added to scores: -inf where a token from ``start`` does not see one of ``end``, else 0, [count, end].

    All layers of a chunk ask for it, so it is made once; of true and false a copy like it would be made in each layer.
    """
    behind = torch.arange(start, start + count, device=device)[:, None] - torch.arange(end, device=device)
    seen = (behind >= 0) & (behind < (window or end))
    return torch.zeros(count, end, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
