"""The Triton kernels as the engine calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.devices._base import WANTED, WINDOW, Batch, Mode
from engine.devices._plain import Paged, Plain, PlainReader
from engine.kernels._base import Keep
from engine.kernels._cuda import prefill
from engine.kernels._cuda.attend import attend
from engine.kernels._cuda.graph import compiled
from engine.kernels._cuda.lists import list_all
from engine.kernels._cuda.pool import PagedPool, reader
from engine.kernels._cuda.select import Chooser
from engine.kernels._cuda.store import append
from engine.kernels._cuda.tuning import choice_for, launch_for, processors
from engine.kernels._cuda.worklist import WorkList
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache

SAMPLED = 16


class Triton(Plain):
    """What has no kernel of its own (representatives of many blocks at once, most changes of form) is plain torch."""

    def warm_up(self, cache: KVCache, forms: tuple[str, ...]) -> None:
        """What prompts of any length will run, and what gives pages one of these cold forms."""
        where, shape = cache.device, cache.geometry
        table = torch.zeros(1, dtype=torch.int32, device=where)
        q = torch.zeros(1, shape.q_heads, shape.head_dim, dtype=getattr(torch, shape.dtype), device=where)
        cache.sync()
        # Pages of each form are met alone at first, and with those of the others later.
        for some in {(), *((form,) for form in forms), forms}:
            pool = cache.pools(some)[0]
            _, seen = self.chunk(q, pool, table, 0, 0)
            self.observe(q, seen, pool, table, 0, range(1), 0)
        for form in forms:
            self.freeze(cache.pools(())[0], form, torch.zeros(1, dtype=torch.int64, device=where))

    @property
    def compiles(self) -> tuple[int, float]:
        return compiled(), 0.0

    def append(self, k: Tensor, v: Tensor, pool: PagedPool, batch: Batch) -> None:
        append(k, v, pool, batch.table, batch.lens)

    def freeze(self, pool: PagedPool, form: str, pages: Tensor) -> Tensor:
        kernel = getattr(reader(form), "freeze", None)
        if kernel is None:
            return super().freeze(pool, form, pages)
        frozen: Tensor = kernel(pool.geometry, pool.hot, pages)
        return frozen

    def reader(self, pools: Sequence[PagedPool], batch: Batch, mode: Mode) -> Paged:
        """`generic` kernels are plain operators; they also choose where the host must know what is chosen."""
        if mode.kernels == "generic":
            return PlainReader(pools, batch, mode.keep)
        if mode.careful or mode.selector == "generic":
            return ChosenElsewhere(pools, batch, mode.keep)
        return ListReader(pools, batch, mode.keep)

    def chunk(
        self, q: Tensor, pool: PagedPool, table: Tensor, start: int, window: int, mark: Mark | None = None
    ) -> tuple[Tensor, Tensor]:
        return prefill.attend_chunk(q, pool, table, start, window)

    def observe(
        self, q: Tensor, seen: Tensor, pool: PagedPool, table: Tensor, start: int, sampled: range, window: int
    ) -> Tensor:
        rows, blocks = slice(sampled.start - start, sampled.stop - start), sampled.stop // pool.geometry.block_tokens
        return prefill.observe(q[rows], seen[rows], pool, table, sampled.start, blocks, SAMPLED, window)


class ListReader(Paged):
    """Pages by work list. Lists, workspace and chooser are shared by all layers; each layer has counts of its own."""

    def __init__(self, pools: Sequence[PagedPool], batch: Batch, keep: Keep | None) -> None:
        self.pools, self.batch, self.keep = pools, batch, keep
        shape, device = pools[0].geometry, batch.table.device
        forms = pools[0].forms
        first = WorkList(shape, batch.requests, batch.width, device, forms)
        self._counts = torch.zeros(len(pools), 1 + len(forms), first.pairs, dtype=torch.int32, device=device)
        self.works = [first.sharing(counts) for counts in self._counts]
        longest = batch.width if keep is None else keep.blocks_for(batch.width * shape.block_tokens)
        self.launch = launch_for(first.pairs, longest, processors(device), forms)
        self.how = choice_for(first.pairs, batch.width * shape.subs_per_block)
        self.chooser = None
        if keep is not None:
            self.chooser = Chooser(pools[0], batch.requests, batch.width, keep)
            self.chooser.wanted, self.chooser.window = batch.numbers[WANTED], batch.numbers[WINDOW]

    def select(self, layer: int, q: Tensor) -> None:
        batch, pool, work = self.batch, self.pools[layer], self.works[layer]
        if self.chooser is None:
            list_all(pool, batch.table, batch.lens, work)
        else:
            self.chooser.choose(q, pool, batch.table, batch.lens, work, self.how)

    def attend(self, layer: int, q: Tensor, mark: Mark | None) -> Tensor:
        pool = self.pools[layer]
        out = attend(q, torch.empty_like(q), pool, self.works[layer], pool.geometry.head_dim**-0.5, self.launch)
        if mark is not None:
            mark("attend")
        return out

    def counts(self) -> Tensor:
        return self._counts.sum(-1, dtype=torch.int32)


class ChosenElsewhere(ListReader):
    """Plain operators choose and these kernels read: to show what a slow selection costs, or to know the choice."""

    def __init__(self, pools: Sequence[PagedPool], batch: Batch, keep: Keep | None) -> None:
        super().__init__(pools, batch, None)
        self.plain = PlainReader(pools, batch, keep)

    def select(self, layer: int, q: Tensor) -> None:
        self.plain.select(layer, q)

    def chosen(self) -> Tensor:
        return self.plain.chosen()

    def attend(self, layer: int, q: Tensor, mark: Mark | None) -> Tensor:
        work = self.works[layer]
        work.take(self.plain.codes(layer).flatten(0, 1))
        work.set_tail(self.batch.lens)
        return super().attend(layer, q, mark)
