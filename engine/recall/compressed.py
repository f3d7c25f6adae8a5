"""A KV cache compressed as the engine would compress it: an independent, plain-torch statement, slow and batched.

One path serves every form, so that the full cache is its own control.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model import Decoder

BLOCK, SUB_BLOCK, SINK, RECENT = 32, 16, 32, 128


@dataclass(frozen=True)
class Compression:
    """What is done to the cache: symmetric integers of `bits` per row, and the share of blocks a decode step reads."""

    name: str = "full"
    bits: int | None = None
    kept_share: float | None = None


FULL, INT8 = Compression(), Compression("int8", 8)
SPARSE, BOTH = Compression("25 % read", None, 0.25), Compression("int8, 25 % read", 8, 0.25)


class CompressedCache:
    """Keys and values of equally long sequences; every row is compressed when written, also while prefilling."""

    def __init__(self, model: Decoder, rows: int, capacity: int, compression: Compression) -> None:
        config, weight = model.config, model.embed.weight
        self.last_layer = config.layers - 1
        self.compression = compression
        shape = (config.layers, rows, capacity, config.kv_heads, config.head_dim)
        self.keys = torch.zeros(shape, device=weight.device)
        self.values = torch.zeros(shape, device=weight.device)
        self.filled = 0

    def fork(self, copies: int) -> None:
        """Continue every sequence `copies` times."""
        self.keys = self.keys.repeat_interleave(copies, dim=1)
        self.values = self.values.repeat_interleave(copies, dim=1)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = self.keys.shape[1]
        queries, k, v = (x.reshape(rows, -1, *x.shape[1:]) for x in (q, k, v))
        end = self.filled + k.shape[1]
        self.keys[layer, :, self.filled : end] = quantised(k, self.compression.bits)
        self.values[layer, :, self.filled : end] = quantised(v, self.compression.bits)
        attend = self._attend if self.filled else self._prefill
        mixed = attend(queries, self.keys[layer, :, :end], self.values[layer, :, :end])
        if layer == self.last_layer:
            self.filled = end
        return mixed.flatten(0, 1)

    def _prefill(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The first tokens read one another causally; shapes as in `_attend`."""
        group = q.shape[2] // k.shape[2]
        k, v = (x.repeat_interleave(group, 2).transpose(1, 2) for x in (k, v))
        return F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True).transpose(1, 2)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [rows, new, q_heads, d], k and v [rows, end, kv_heads, d] -> [rows, new, q_heads, d]."""
        new, end = q.shape[1], k.shape[1]
        q = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[-1]) * q.shape[-1] ** -0.5
        scores = torch.einsum("rnhgd,rthd->rhgnt", q, k)
        if new > 1:
            future = torch.ones(new, end, dtype=torch.bool, device=q.device).triu(1 + end - new)
            scores.masked_fill_(future, float("-inf"))
        elif self.compression.kept_share is not None:
            skipped = ~selected(q[:, 0], k, self.compression.kept_share)
            scores.masked_fill_(skipped[:, :, None, None], float("-inf"))
        mixed: Tensor = torch.einsum("rhgnt,rthd->rnhgd", scores.softmax(-1), v).flatten(2, 3)
        return mixed


def quantised(rows: Tensor, bits: int | None) -> Tensor:
    """Round the last dimension to symmetric integers of `bits`, one scale per row, and back to float."""
    if bits is None:
        return rows
    most = (1 << (bits - 1)) - 1
    scale = rows.abs().amax(-1, keepdim=True).clamp_min(1e-12) / most
    return (rows / scale).round() * scale


def selected(q: Tensor, k: Tensor, kept_share: float) -> Tensor:
    """Which of T tokens one decode step reads: the sink, the recent window and the best blocks, kept_share in all.

    q [rows, kv_heads, group, d], k [rows, T, kv_heads, d] -> bool [rows, kv_heads, T]. A block scores the upper
    bound of q . k over its sub-blocks' per-channel ranges (Quest), the highest of its sub-blocks and of the group.
    """
    tokens = k.shape[1]
    blocks = -(-tokens // BLOCK)
    padding = k[:, -1:].expand(-1, blocks * BLOCK - tokens, -1, -1)
    parts = torch.cat((k, padding), 1).reshape(len(k), -1, SUB_BLOCK, *k.shape[2:])
    low, high = parts.amin(2), parts.amax(2)
    bound = torch.einsum("rhgd,rshd->rhgs", q.clamp_min(0), high) + torch.einsum("rhgd,rshd->rhgs", q.clamp_max(0), low)
    score = bound.reshape(*bound.shape[:3], blocks, BLOCK // SUB_BLOCK).amax((-1, 2))
    score[..., : SINK // BLOCK] = float("inf")
    score[..., (tokens - RECENT) // BLOCK :] = float("inf")
    best = score.topk(int(kept_share * blocks), -1).indices
    kept = torch.zeros_like(score, dtype=torch.bool).scatter_(-1, best, True)
    return kept.repeat_interleave(BLOCK, -1)[..., :tokens]


def forward(model: Decoder, cache: CompressedCache, tokens: Tensor) -> Tensor:
    """Run [rows, new] tokens behind what the cache holds -> logits [rows, vocab] of the last of them."""
    rows, new = tokens.shape
    positions = torch.arange(cache.filled, cache.filled + new, device=tokens.device).repeat(rows)
    hidden = model(tokens.flatten(), positions, cache)
    return model.logits(hidden.reshape(rows, new, -1)[:, -1])
