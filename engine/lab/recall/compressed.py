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
        # Tokens of a head follow each other: a product reads them where they lie, and nothing is copied for it.
        shape = (config.layers, rows, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, device=weight.device)
        self.values = torch.zeros(shape, device=weight.device)
        self.filled = 0

    def fork(self, copies: int) -> None:
        """Continue every sequence `copies` times."""
        self.keys = self.keys.repeat_interleave(copies, dim=1)
        self.values = self.values.repeat_interleave(copies, dim=1)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = self.keys.shape[1]
        queries, k, v = (x.reshape(rows, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        end = self.filled + k.shape[2]
        self.keys[layer, :, :, self.filled : end] = quantised(k, self.compression.bits)
        self.values[layer, :, :, self.filled : end] = quantised(v, self.compression.bits)
        attend = self._attend if self.filled else self._prefill
        mixed = attend(queries, self.keys[layer, :, :, :end], self.values[layer, :, :, :end])
        if layer == self.last_layer:
            self.filled = end
        return mixed.transpose(1, 2).flatten(0, 1)

    def _prefill(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The first tokens read one another causally; shapes as in `_attend`."""
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [rows, q_heads, new, d], k and v [rows, kv_heads, end, d] -> [rows, q_heads, new, d]."""
        (rows, heads, end, dim), new = k.shape, q.shape[2]
        q = q.reshape(rows, heads, -1, dim) * dim**-0.5
        scores = (q @ k.transpose(-1, -2)).view(rows, heads, -1, new, end)
        if new > 1:
            future = torch.ones(new, end, dtype=torch.bool, device=q.device).triu(1 + end - new)
            scores.masked_fill_(future, float("-inf"))
        elif self.compression.kept_share is not None:
            skipped = ~selected(q, k, self.compression.kept_share)
            scores.masked_fill_(skipped[:, :, None, None], float("-inf"))
        mixed: Tensor = scores.softmax(-1).flatten(2, 3) @ v
        return mixed.view(rows, -1, new, dim)


def quantised(rows: Tensor, bits: int | None) -> Tensor:
    """Round the last dimension to symmetric integers of `bits`, one scale per row, and back to float."""
    if bits is None:
        return rows
    most = (1 << (bits - 1)) - 1
    scale = rows.abs().amax(-1, keepdim=True).clamp_min(1e-12) / most
    return (rows / scale).round() * scale


def selected(q: Tensor, k: Tensor, kept_share: float) -> Tensor:
    """Which of T tokens one decode step reads: the sink, the recent window and the best blocks, kept_share in all.

    q [rows, kv_heads, group, d], k [rows, kv_heads, T, d] -> bool [rows, kv_heads, T]. A block scores the upper
    bound of q . k over its sub-blocks' per-channel ranges (Quest), the highest of its sub-blocks and of the group.
    """
    tokens = k.shape[2]
    blocks, whole = -(-tokens // BLOCK), tokens // BLOCK * BLOCK
    rest = torch.cat((k[:, :, whole:], k[:, :, -1:].expand(-1, -1, blocks * BLOCK - tokens, -1)), 2)
    parts = [part.unflatten(2, (-1, SUB_BLOCK)) for part in (k[:, :, :whole], rest)]  # type: ignore[no-untyped-call]
    low, high = (torch.cat([bound(part, 3) for part in parts], 2) for bound in (torch.amin, torch.amax))
    bound = q.clamp_min(0) @ high.transpose(-1, -2) + q.clamp_max(0) @ low.transpose(-1, -2)
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
