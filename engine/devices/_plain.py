"""Operators made of plain torch for any device: rows are copied together by index before anything multiplies them.

On a CUDA device these are the `generic` kernels; elsewhere they are all there is. Shapes never depend on what was
chosen, so that a graph can hold them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine import forms
from engine.devices._base import WANTED, WINDOW, Batch, Mode, Traffics
from engine.kernels._base import Keep
from engine.kernels._cuda.pool import ABSENT, PagedPool, is_form, page_number
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.pool import Pool

HIDDEN = -1e30
BLOCKS_AT_ONCE = 512


def pages(pool: PagedPool, held: Tensor, *, zeros: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """k, v [..., tokens, d] at full precision, and which tokens are there, of the pages ``held`` int32 [...] names.

    Where none is: zeros, or without ``zeros`` anything, which saves a pass over everything.
    """
    tokens, dim = pool.geometry.block_tokens, pool.geometry.head_dim
    slot = torch.arange(tokens, device=held.device)
    rows = held.clamp_min(0).long()[..., None] * (2 * tokens) + slot
    flat = pool.hot.view(-1, dim)
    k, v = flat[rows], flat[rows + tokens]
    there = (held >= 0)[..., None].expand(rows.shape)
    if zeros:
        gone = (held < 0)[..., None, None]
        k, v = k.masked_fill_(gone, 0), v.masked_fill_(gone, 0)
    for form in pool.forms:
        mine = is_form(held, form)
        cold_k, cold_v, kept = pool.read(form, torch.where(mine, page_number(held), 0))
        at = mine[..., None, None]
        k, v = torch.where(at, cold_k.to(k.dtype), k), torch.where(at, cold_v.to(v.dtype), v)
        there = torch.where(mine[..., None], kept, there)
    return k, v, there


class Plain:
    KERNELS: tuple[str, ...] = ("generic", "block")

    @property
    def pool(self) -> Callable[[KVCache], Pool]:
        from engine.devices._pool import DevicePool

        return lambda cache: DevicePool(cache, self)

    def warm_up(self, cache: Any, forms: tuple[str, ...]) -> None:
        """Nothing is compiled."""

    @property
    def compiles(self) -> tuple[int, float]:
        return 0, 0.0

    def append(self, k: Tensor, v: Tensor, pool: PagedPool, batch: Batch) -> None:
        tokens, last = pool.geometry.block_tokens, batch.lens.long() - 1
        block = batch.table.long().gather(1, (last // tokens)[:, None])[:, 0]
        self.store(k, v, pool, block, last % tokens)
        full = block[last % tokens == tokens - 1]
        if len(full):
            pool.summarise(full)

    def store(self, k: Tensor, v: Tensor, pool: PagedPool, block: Tensor, slot: Tensor) -> None:
        tokens, dim = pool.geometry.block_tokens, pool.geometry.head_dim
        rows = (pool.place[block].long() * (2 * tokens) + slot[:, None]).flatten()
        flat = pool.hot.view(-1, dim)
        flat[rows] = k.reshape(-1, dim)
        flat[rows + tokens] = v.reshape(-1, dim)

    def summarise(self, pools: Sequence[PagedPool], ids: Tensor) -> None:
        """Representatives of full hot blocks int64 [n], in every layer."""
        for pool in pools:
            for part in ids.split(BLOCKS_AT_ONCE):  # type: ignore[no-untyped-call]
                pool.summarise(part)

    def freeze(self, pool: PagedPool, form: str, pages: Tensor) -> Tensor:
        """Hot pages int64 [n] in a cold form: bytes uint8 [n, page_bytes]."""
        x = pool.hot[pages].float()
        return pool.form(form).encode(pool.geometry, x[:, 0], x[:, 1])

    def reader(self, pools: Sequence[PagedPool], batch: Batch, mode: Mode) -> Paged:
        return PlainReader(pools, batch, mode.keep)

    def chooser(self, pools: Sequence[PagedPool], batch: Batch, mode: Mode) -> PlainReader:
        return PlainReader(pools, batch, mode.keep)

    def chunk(
        self, q: Tensor, pool: PagedPool, table: Tensor, start: int, window: int, mark: Mark | None = None
    ) -> tuple[Tensor, Tensor]:
        scores, values = self._scores(q, pool, table, start, window)
        scores = scores.float()
        weight = scores.softmax(-1).to(values.dtype)
        out = torch.einsum("hgnt,htd->nhgd", weight, values)
        return out.reshape(q.shape), scores.logsumexp(-1).permute(2, 0, 1).flatten(1) / LN_2

    def observe(
        self, q: Tensor, seen: Tensor, pool: PagedPool, table: Tensor, start: int, sampled: range, window: int
    ) -> Tensor:
        tokens = pool.geometry.block_tokens
        blocks = sampled.stop // tokens
        scores, _ = self._scores(q[sampled.start - start :][: len(sampled)], pool, table, sampled.start, window)
        mass = scores.float().softmax(-1).sum((1, 2))[:, : blocks * tokens]
        per_block: Tensor = mass.reshape(len(mass), blocks, tokens).sum(2)
        return per_block.T

    def _scores(self, q: Tensor, pool: PagedPool, table: Tensor, start: int, window: int) -> tuple[Tensor, Tensor]:
        """Scaled and masked scores [heads, group, n, stored], and values [heads, stored, d]."""
        shape, end = pool.geometry, start + len(q)
        ids = table[: shape.blocks_for(end)].long()
        held = pool.place[ids].T
        k, v, kept = (part.flatten(1, 2)[:, :end] for part in pages(pool, held))
        rows = q.view(len(q), shape.kv_heads, shape.group, -1)
        scores = torch.einsum("nhgd,htd->hgnt", rows, k) * shape.head_dim**-0.5
        behind = torch.arange(start, end, device=q.device)[:, None] - torch.arange(end, device=q.device)
        seen = (behind >= 0) & (behind < (window or end)) & kept[:, None, None]
        return scores.masked_fill(~seen, HIDDEN), v


LN_2 = 0.6931471805599453


def weighted(q: Tensor, k: Tensor, v: Tensor, read: Tensor) -> Tensor:
    """q [n, q_heads, d] over k, v [n, kv_heads, pages, tokens, d] where ``read`` says so -> the shape of q."""
    # What was never written may be anything, and no weight of zero makes that nothing.
    v = v.masked_fill_(~read[..., None], 0)
    group = q.view(*k.shape[:2], -1, q.shape[-1])
    score = (group @ k.flatten(2, 3).transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    weight = score.masked_fill(~read.flatten(2)[:, :, None], HIDDEN).softmax(-1).to(q.dtype)
    out: Tensor = (weight @ v.flatten(2, 3)).reshape(q.shape)
    return out


class Paged(ABC):
    """A reader of one batch's pages, pools of which are one a layer."""

    pools: Sequence[PagedPool]
    batch: Batch

    @abstractmethod
    def select(self, layer: int, q: Tensor) -> None: ...

    @abstractmethod
    def attend(self, layer: int, q: Tensor, mark: Mark | None) -> Tensor: ...

    @abstractmethod
    def counts(self) -> Tensor:
        """int32 [layers, 1 + the pools' forms]: pages that each layer read last, hot ones first."""

    def chosen(self) -> Tensor:
        raise NotImplementedError("this reader does not tell the host what it chose")

    def windowed(self, layer: int, q: Tensor, window: int, mark: Mark | None) -> Tensor:
        pool, batch = self.pools[layer], self.batch
        tokens, count = pool.geometry.block_tokens, -(-window // pool.geometry.block_tokens) + 1
        lens = batch.lens.long()[:, None]
        spot = (lens - 1).clamp_min(0) // tokens - torch.arange(count, device=q.device)
        ids = batch.table.long().gather(1, spot.clamp_min(0))
        held = pool.place[ids].masked_fill((spot < 0)[..., None], ABSENT).transpose(1, 2)
        k, v, kept = pages(pool, held)
        place = spot[..., None] * tokens + torch.arange(tokens, device=q.device)
        read = (place < lens[..., None]) & (place >= lens[..., None] - window)
        out = weighted(q, k, v, kept & read[:, None])
        if mark is not None:
            mark("attend")
        return out

    def traffics(self, counts: Tensor, windows: tuple[int, ...], lens: list[int]) -> Traffics:
        """From counts of hot pages and each cold form's, [layers x (1 + forms)]."""
        shape = self.pools[0].geometry
        entries = [forms.get(name).entries(shape) for name in self.pools[0].forms]
        return pages_read(counts.view(len(self.pools), -1), entries, windows, lens, shape.block_tokens, shape.kv_heads)


class PlainReader(Paged):
    """``spot`` int64 [requests, kv_heads, n]: places of the table that the last choice reads, -1 where none is."""

    def __init__(self, pools: Sequence[PagedPool], batch: Batch, keep: Keep | None) -> None:
        self.pools, self.batch, self.keep = pools, batch, keep
        shape = pools[0].geometry
        self.most = batch.width if keep is None else keep.blocks_for(batch.width * shape.block_tokens)
        self._counts = torch.zeros(len(pools), 1 + len(pools[0].forms), dtype=torch.int32, device=batch.table.device)
        self.spot = torch.full((batch.requests, shape.kv_heads, self.most), -1, device=batch.table.device)

    def select(self, layer: int, q: Tensor) -> None:
        pool, batch = self.pools[layer], self.batch
        tokens, table = pool.geometry.block_tokens, batch.table.long()
        place = torch.arange(batch.width, device=table.device)
        there = (place * tokens < batch.lens[:, None])[:, None] & (pool.place[table].transpose(1, 2) != ABSENT)
        if self.keep is None:
            self.spot = torch.where(there, place, -1)
            return
        score = self._score(q, pool, table)
        pinned = (place < self.keep.sink_blocks) | (place >= batch.numbers[WINDOW][:, None])
        score = score.masked_fill(pinned[:, None], torch.inf).masked_fill(~there, -torch.inf)
        best = score.topk(self.most, -1)
        wanted = torch.arange(self.most, device=table.device) < batch.numbers[WANTED][:, None, None]
        found = best.indices.masked_fill(~(wanted & (best.values > -torch.inf)), batch.width).sort(-1).values
        self.spot = torch.where(found < batch.width, found, -1)

    def _score(self, q: Tensor, pool: PagedPool, table: Tensor) -> Tensor:
        """What each block promises to the best query of each group, float32 [requests, kv_heads, width]."""
        shape = pool.geometry
        rows = pool.reps[table].transpose(1, 2)
        group = q.view(len(q), shape.kv_heads, shape.group, -1)
        if pool.statistics == "bounds":
            group = torch.cat((group.clamp_max(0), group.clamp_min(0)), -1)
        score = group @ rows.flatten(4).flatten(2, 3).transpose(-1, -2)
        best: Tensor = score.view(*score.shape[:3], table.shape[1], -1).amax((2, 4)).float()
        return best

    def codes(self, layer: int) -> Tensor:
        """What the table of pages says of the chosen places, int32 [requests, kv_heads, n]."""
        pool, table = self.pools[layer], self.batch.table.long()
        held = pool.place[table].transpose(1, 2).gather(2, self.spot.clamp_min(0))
        return held.masked_fill(self.spot < 0, ABSENT)

    def attend(self, layer: int, q: Tensor, mark: Mark | None) -> Tensor:
        pool, shape = self.pools[layer], self.pools[layer].geometry
        held = self.codes(layer)
        k, v, kept = pages(pool, held, zeros=False)
        slot = self.spot[..., None] * shape.block_tokens + torch.arange(shape.block_tokens, device=q.device)
        read = kept & (slot < self.batch.lens[:, None, None, None])
        if mark is not None:
            mark("gather")
        out = weighted(q, k, v, read)
        self._counts[layer, 0] = (held >= 0).sum()
        for column, form in enumerate(pool.forms, 1):
            self._counts[layer, column] = is_form(held, form).sum()
        if mark is not None:
            mark("attend")
        return out

    def chosen(self) -> Tensor:
        table = self.batch.table.long()[:, None].expand(-1, self.spot.shape[1], -1)
        return table.gather(2, self.spot.clamp_min(0)).masked_fill(self.spot < 0, -1).cpu()

    def counts(self) -> Tensor:
        return self._counts


def pages_read(
    counts: Tensor, entries: list[int], windows: tuple[int, ...], lens: list[int], tokens: int, heads: int
) -> Traffics:
    """From counts [layers, 1 + forms] of hot pages and each cold form's, which hold ``entries`` tokens where full.

    What a window reads is known from the lengths.
    """
    made = Traffics()
    unfilled = sum(tokens - ((n - 1) % tokens + 1) for n in lens)
    for row, window in zip(counts.tolist(), windows, strict=True):
        hot, cold = row[0], sum(row[1:])
        if window:
            seen = sum(min(n, window) for n in lens)
            hot, cold = heads * sum(-(-n // tokens) - max(0, n - window) // tokens for n in lens), 0
        else:
            held = sum(pages * each for pages, each in zip(row, (tokens, *entries), strict=True))
            seen = held / heads - unfilled
        made.hot.append(hot)
        made.cold.append(cold)
        made.read.append(seen)
        made.total.append(sum(lens))
    return made
