"""Choosing and reading latent rows for one batch: with plain torch on any device, with Triton on NVIDIA's.

A layer that reads all of its rows needs no `select`. Queries of the index are eight-bit floats as its keys are; their
scales belong into the heads' weights.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engine.latent.pool import LatentBatch, LatentPool

HIDDEN = -1e30


class LatentReads(Protocol):
    def select(self, queries: Tensor, weights: Tensor) -> None:
        """queries e4m3 [requests, index_heads, index_dim], weights float32 [requests, index_heads].

        A row's score is the sum over heads of weight * max(query . key, 0); the `top_k` best are read.
        """
        ...

    def attend(self, q: Tensor, scale: float) -> Tensor:
        """q [requests, heads, width] -> [requests, heads, latent]."""
        ...


def scores(pool: LatentPool, batch: LatentBatch, queries: Tensor, weights: Tensor) -> Tensor:
    """float32 [requests, rows], HIDDEN where there is no row."""
    values, scale = pool.key_values()
    pages = batch.table.long()
    keys = values[pages].float() * scale[pages][..., None]
    reach = torch.einsum("rhd,rptd->rhpt", queries.float(), keys).clamp_min_(0).flatten(2)
    found = torch.einsum("rhn,rh->rn", reach, weights)
    return found.masked_fill_(~batch.row_numbers()[1], HIDDEN)


class PlainLatentReader:
    """Rows are copied together by index before anything multiplies them."""

    def __init__(self, pool: LatentPool, batch: LatentBatch) -> None:
        self.pool, self.batch = pool, batch
        self.at, self.there = batch.row_numbers()

    def select(self, queries: Tensor, weights: Tensor) -> None:
        found = scores(self.pool, self.batch, queries, weights)
        best = found.topk(min(self.pool.shape.top_k, found.shape[1]), sorted=False)
        self.at = self.batch.row_numbers()[0].gather(1, best.indices)
        self.there = best.values > HIDDEN

    def attend(self, q: Tensor, scale: float) -> Tensor:
        batch, latent = self.batch, self.pool.shape.latent
        own_there = torch.arange(batch.own.shape[1], device=q.device) < batch.own_counts[:, None]
        at, there = torch.cat((self.at, batch.own.long()), 1), torch.cat((self.there, own_there), 1)
        rows = self.pool.rows[torch.where(there, at, 0)]
        found = torch.einsum("rhw,rnw->rhn", q, rows).float() * scale
        weight = found.masked_fill(~there[:, None], HIDDEN).softmax(-1).to(rows.dtype)
        return torch.einsum("rhn,rnl->rhl", weight, rows[..., :latent])


class TritonLatentReader:
    """One launch reads; choosing is two: scores, and the best of them."""

    def __init__(self, pool: LatentPool, batch: LatentBatch, processors: int) -> None:
        from engine.kernels._cuda.latent import RowSpace, row_launch
        from engine.kernels._cuda.latent_index import Picker

        shape, device = pool.shape, batch.table.device
        self.pool, self.batch = pool, batch
        chosen = min(shape.top_k, batch.most_rows) if shape.top_k else batch.most_rows
        self.paged = not shape.top_k and not shape.window
        self.picker = Picker(shape, batch, processors) if shape.top_k else None
        if not self.paged:
            self.listed = torch.zeros(batch.requests, chosen + shape.window, dtype=torch.int32, device=device)
            self.counts = torch.zeros(batch.requests, dtype=torch.int32, device=device)
        self.launch = row_launch(batch.requests, shape.heads, chosen + shape.window, shape.page_tokens, processors)
        groups = batch.requests * -(-shape.heads // self.launch.lanes)
        self.space = RowSpace(groups * self.launch.parts, self.launch.lanes, shape.latent, device)
        self.out = torch.zeros(batch.requests, shape.heads, shape.latent, dtype=pool.rows.dtype, device=device)

    def plan(self) -> None:
        """Once a step, where all rows are read beside a window's: list them."""
        if self.paged or self.picker is not None:
            return
        batch = self.batch
        numbers, there = batch.row_numbers()
        own_there = torch.arange(batch.own.shape[1], device=there.device) < batch.own_counts[:, None]
        all_rows, all_there = torch.cat((numbers.int(), batch.own), 1), torch.cat((there, own_there), 1)
        order = (~all_there).byte().argsort(dim=1, stable=True)
        self.listed.copy_(all_rows.gather(1, order))
        self.counts.copy_(all_there.sum(1))

    def select(self, queries: Tensor, weights: Tensor) -> None:
        if self.picker is not None:
            self.picker.pick(queries, weights, self.pool, self.listed, self.counts)

    def attend(self, q: Tensor, scale: float) -> Tensor:
        from engine.kernels._cuda.latent import attend_latent

        batch = self.batch
        listed, counts = (batch.table, batch.counts) if self.paged else (self.listed, self.counts)
        tokens = self.pool.shape.page_tokens if self.paged else 0
        return attend_latent(
            q, self.out, self.pool.rows, listed, counts, self.space, scale, self.launch, page_tokens=tokens
        )
