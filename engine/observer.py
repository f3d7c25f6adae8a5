"""Query-aware importance: now and then, the attention mass that one decoding request gives to the blocks it can see."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels._base import DecodeBatch
from engine.residency import Residency

EVERY = 8
"""Steps between two observations: each reads all of one request's keys, as no sparse step does."""


class Observer:
    """Call `next_row` once a step, then `observe` in every layer."""

    def __init__(self, residency: Residency) -> None:
        self.residency = residency
        self.steps = 0

    def next_row(self, requests: int) -> int | None:
        """Which request of the batch to observe in this step; None for none."""
        self.steps += 1
        return self.steps // EVERY % requests if self.steps % EVERY == 0 else None

    def observe(self, layer: int, q: Tensor, batch: DecodeBatch, row: int) -> None:
        """q [B, q_heads, head_dim]: add the mass of the row's query, summed over its group of heads, to its blocks."""
        cache, length = self.residency.cache, int(batch.context_lens[row])
        shape = cache.geometry
        table = batch.block_table[row, : shape.blocks_for(length)].long()
        keys, _ = cache.read_dense(layer, table, length)
        score = torch.einsum("hgd,thd->hgt", q[row].view(shape.kv_heads, shape.group, -1), keys) * shape.head_dim**-0.5
        absent = cache.absent(layer, table, length)
        if absent is not None:
            score.masked_fill_(absent.T[:, None], -torch.inf)
        mass = score.softmax(-1).sum(1)
        full = length // shape.block_tokens
        per_block = mass[:, : full * shape.block_tokens].view(shape.kv_heads, full, shape.block_tokens).sum(2)
        self.residency.observe(layer, table[:full], per_block.T)
