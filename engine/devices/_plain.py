"""Operators made of plain torch for any device: rows are copied together by index before anything multiplies them.

On a CUDA device these are the `generic` kernels; elsewhere they are all there is. Shapes never depend on what was
chosen, so that a graph can hold them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.devices._base import WANTED, WINDOW, Batch, Mark
from engine.kernels._base import Keep
from engine.kernels._cuda.pool import ABSENT, PagedPool, is_form, page_number

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
    def append(self, k: Tensor, v: Tensor, pool: PagedPool, batch: Batch) -> None:
        tokens, last = pool.geometry.block_tokens, batch.lens.long() - 1
        block = batch.table.long().gather(1, (last // tokens)[:, None])[:, 0]
        store(pool, block, last % tokens, k, v)
        full = block[last % tokens == tokens - 1]
        if len(full):
            pool.summarise(full)

    def summarise(self, pools: Sequence[PagedPool], ids: Tensor) -> None:
        for pool in pools:
            for part in ids.split(BLOCKS_AT_ONCE):  # type: ignore[no-untyped-call]
                pool.summarise(part)

    def freeze(self, pool: PagedPool, form: str, pages: Tensor) -> Tensor:
        x = pool.hot[pages].float()
        return pool.form(form).encode(pool.geometry, x[:, 0], x[:, 1])

    def reader(self, pools: Sequence[PagedPool], batch: Batch, keep: Keep | None) -> PlainReader:
        return PlainReader(pools, batch, keep)

    def chunk(self, q: Tensor, pool: PagedPool, table: Tensor, start: int, window: int) -> tuple[Tensor, Tensor]:
        scores, values = self._scores(q, pool, table, start, window)
        scores = scores.float()
        weight = scores.softmax(-1).to(values.dtype)
        out = torch.einsum("hgnt,htd->nhgd", weight, values)
        return out.reshape(q.shape), scores.logsumexp(-1).permute(2, 0, 1).flatten(1) / LN_2

    def observe(
        self, q: Tensor, mass_at: Tensor, pool: PagedPool, table: Tensor, start: int, blocks: int, window: int
    ) -> Tensor:
        tokens = pool.geometry.block_tokens
        scores, _ = self._scores(q, pool, table, start, window)
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


def store(pool: PagedPool, block: Tensor, slot: Tensor, k: Tensor, v: Tensor) -> None:
    """k, v [n, kv_heads, d] to slots int64 [n] of hot blocks int64 [n]."""
    tokens, dim = pool.geometry.block_tokens, pool.geometry.head_dim
    rows = (pool.place[block].long() * (2 * tokens) + slot[:, None]).flatten()
    flat = pool.hot.view(-1, dim)
    flat[rows] = k.reshape(-1, dim)
    flat[rows + tokens] = v.reshape(-1, dim)


class PlainReader:
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
        # What was never written may be anything, and no weight of zero makes that nothing.
        v.masked_fill_(~read[..., None], 0)
        group = q.view(len(q), shape.kv_heads, shape.group, -1)
        score = (group @ k.flatten(2, 3).transpose(-1, -2)).float() * shape.head_dim**-0.5
        weight = score.masked_fill(~read.flatten(2)[:, :, None], HIDDEN).softmax(-1).to(q.dtype)
        out: Tensor = (weight @ v.flatten(2, 3)).reshape(q.shape)
        self._counts[layer, 0] = (held >= 0).sum()
        for column, form in enumerate(pool.forms, 1):
            self._counts[layer, column] = is_form(held, form).sum()
        if mark is not None:
            mark("attend")
        return out

    def counts(self) -> Tensor:
        return self._counts
