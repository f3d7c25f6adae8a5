"""The inputs of one measured shape: several disjoint sets over one paged pool, all in memory at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.kernels._cuda.pool import PagedPool, Statistics, cold_code
from engine.kernels._cuda.select import Chooser
from engine.kernels._cuda.worklist import WorkList, Workspace

TOKENS = 64
KEPT = 0.25


def llama(rep_tokens: int = TOKENS) -> KVGeometry:
    """The attention of an 8B Llama: 32 query heads, 8 kv heads, 128 wide."""
    return KVGeometry(1, 8, 32, 128, block_tokens=TOKENS, rep_tokens=rep_tokens)


@dataclass
class Set:
    """One call's inputs; `dense` lists all its pages, `sparse` what `chooser` chose last."""

    q: torch.Tensor
    out: torch.Tensor
    table: torch.Tensor
    lens: torch.Tensor
    dense: WorkList
    sparse: WorkList
    chooser: Chooser


class Arena:
    """Random bfloat16 made once; every shape looks at a part of it."""

    def __init__(self, pages: int) -> None:
        self.rows = torch.empty(pages, 2, TOKENS, 128, dtype=torch.bfloat16, device="cuda")
        for part in self.rows.split(1 << 14):
            part.normal_()

    def pool(self, blocks: int, statistics: Statistics = "mean", rep_tokens: int = TOKENS) -> PagedPool:
        """A pool of `blocks` full blocks, page = block * heads + head, with random statistics of keys."""
        geometry = llama(rep_tokens)
        pool = PagedPool.empty(geometry, blocks, 0, 0, statistics)
        pages = blocks * geometry.kv_heads
        if pages > len(self.rows):
            raise ValueError(f"arena: {pages} pages, it has {len(self.rows)}")
        pool.hot = self.rows[:pages]
        pool.place.copy_(torch.arange(pages, device="cuda").view_as(pool.place))
        pool.reps.normal_(std=rep_tokens**-0.5)
        return pool

    def freeze(self, pool: PagedPool, form: str, share: float) -> None:
        """Give a share of a pool's pages a cold form: encoded pages, over and over."""
        size, pages = pool.page_bytes(form), pool.place.numel()
        k, v = torch.randn(2, min(pages, 4096), TOKENS, 128, device="cuda")
        encoded = pool.form(form).encode(pool.geometry, k, v)
        pool.data, pool.forms = torch.empty(pages * size, dtype=torch.uint8, device="cuda"), (form,)
        for part in pool.data.view(pages, size).split(len(encoded)):
            part.copy_(encoded[: len(part)])
        frozen = torch.rand(pool.place.shape, device="cuda") < share
        pool.place[frozen] = cold_code(form, pool.place[frozen])

    def packed(self, batch: int, context: int, sets: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """k, v [batch, 8, context, 128] of each set, packed, for what cannot read pages."""
        flat = self.rows.view(-1)
        size = batch * 8 * context * 128
        views = [flat[i * size : (i + 1) * size].view(batch, 8, context, 128) for i in range(2 * sets)]
        return list(zip(views[::2], views[1::2], strict=True))


def make_sets(pool: PagedPool, batch: int, context: int, count: int, *, shuffled: bool = True) -> list[Set]:
    """Block order is random over the whole pool, or that of memory; each set owns its blocks."""
    shape, blocks = pool.geometry, context // TOKENS
    every = torch.randperm if shuffled else torch.arange
    order = every(len(pool.place), device="cuda")[: count * batch * blocks].int().view(count, batch, blocks)
    keep = Keep(KEPT, sink_tokens=TOKENS, window_tokens=TOKENS, block_tokens=TOKENS)
    space, made = Workspace(shape, batch, "cuda"), []
    for table in order:
        lens = torch.full((batch,), context, dtype=torch.int32, device="cuda")
        q = torch.randn(batch, shape.q_heads, shape.head_dim, device="cuda").bfloat16()
        dense = WorkList(shape, batch, blocks, "cuda", pool.forms, space)
        dense.everything(pool, table, lens)
        sparse = WorkList(shape, batch, blocks, "cuda", pool.forms, space)
        chooser = Chooser(pool, batch, blocks, keep)
        chooser.plan([context] * batch)
        made.append(Set(q, torch.empty_like(q), table.contiguous(), lens, dense, sparse, chooser))
    return made
