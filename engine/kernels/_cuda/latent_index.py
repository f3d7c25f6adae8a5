# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Choosing latent rows: eight-bit keys scored against all index heads at once, then the best k of them, exactly.

Scoring also counts scores by their first 12 bits, so that one pass over them finds all that are surely in, and those
among which the last places are decided; these few are then searched bit by bit. Ties go to the first row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from engine.kernels._cuda.attend import starts_early
from engine.kernels._cuda.page import INTERPRETED, as_floats
from engine.latent.pool import LatentBatch, LatentPool
from engine.latent.shape import LatentShape

BINS = 4096
SCORERS = 4
"""Programs to a multiprocessor."""


@triton.jit
def ordered(score):
    """Float32 as int32 that sort as the floats do."""
    bits = score.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit(do_not_specialize=["parts", "capacity", "table_stride"])
def score_rows(
    queries, weights, keys, table, counts, scores, bins, parts, capacity, table_stride,
    HEADS: tl.constexpr, LANES: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, BINS: tl.constexpr,
    STAGES: tl.constexpr, UPCAST: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (request, part): pages part, part + parts...: scores as ordered int32 [requests, capacity], and in bins.

    queries, keys as int8 of e4m3 bits; a page of keys is TOKENS of them, then their float32 scales.
    """
    if EARLY:
        gdc_wait()
    request, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    count = tl.load(counts + request)
    slots, columns, heads = tl.arange(0, TOKENS), tl.arange(0, DIM), tl.arange(0, LANES)
    mine = queries + (request * HEADS + heads) * DIM
    query = tl.load(mine[:, None] + columns[None, :], mask=(heads < HEADS)[:, None], other=0)
    query = query.to(tl.float8e4nv, bitcast=True)
    weight = tl.load(weights + request * HEADS + heads, mask=heads < HEADS, other=0.0)
    entry = table + request.to(tl.int64) * table_stride
    score_at, bin_at = scores + request.to(tl.int64) * capacity, bins + request * BINS + BINS // 2
    last = tl.maximum((count + TOKENS - 1) // TOKENS - 1, 0)
    page = tl.load(entry + tl.minimum(part, last))
    for i in tl.range(0, (last - part) // parts + 1, num_stages=STAGES):
        block = part + i * parts
        following = tl.load(entry + tl.minimum(block + parts, last))
        base = keys + page.to(tl.int64) * (TOKENS * (DIM + 4))
        key = tl.load(base + slots[:, None] * DIM + columns[None, :])
        scale = tl.load(as_floats(base + TOKENS * DIM) + slots)
        key = key.to(tl.float8e4nv, bitcast=True)
        if UPCAST:
            reach = tl.dot(key.to(tl.float32), tl.trans(query.to(tl.float32)), input_precision="ieee")
        else:
            reach = tl.dot(key, tl.trans(query)).to(tl.float32)
        order = ordered(tl.sum(tl.maximum(reach, 0.0) * weight[None, :], 1) * scale)
        place = block * TOKENS + slots
        tl.store(score_at + place, order, mask=place < count)
        tl.atomic_add(bin_at + (order >> 20), 1, mask=place < count, sem="relaxed")
        page = following


@triton.jit(do_not_specialize=["capacity", "tiles", "k"])
def mark_rows(
    scores, bins, counts, edges, found, capacity, tiles, k,
    BINS: tl.constexpr, ROWS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (request, tile of ROWS): the bin in which the last places are decided, and what the tile has beyond it.

    `edges` int32 [requests, 2]: that bin, and how many scores lie above it; `found` int32 [requests, tiles]: rows above
    it, and 65536 times those in it.
    """
    if EARLY:
        gdc_wait()
    request, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    total = tl.load(counts + request)
    want = tl.minimum(k, total)
    places = tl.arange(0, BINS)
    held = tl.load(bins + request * BINS + places)
    below = tl.cumsum(held, 0)
    reaches = (total - (below - held) >= want) & (want > 0)
    edge = tl.max(tl.where(reaches, places, -1), 0)
    if tile == 0:
        tl.store(edges + request * 2, edge)
        tl.store(edges + request * 2 + 1, total - tl.sum(tl.where(places == edge, below, 0), 0))
    place = tile * ROWS + tl.arange(0, ROWS)
    order = tl.load(scores + request.to(tl.int64) * capacity + place, mask=place < total, other=0)
    at = (order >> 20) + BINS // 2
    one = (at > edge).to(tl.int32) + ((at == edge).to(tl.int32) << 16)
    tl.store(found + request * tiles + tile, tl.sum(tl.where(place < total, one, 0), 0))


@triton.jit(do_not_specialize=["capacity", "tiles", "table_stride", "list_stride", "k"])
def pick_rows(
    scores, bins, table, counts, own, own_counts, edges, found, near, done, listed, listed_counts,
    capacity, tiles, table_stride, list_stride, k,
    BINS: tl.constexpr, TOKENS: tl.constexpr, OWN: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Program (request, tile): lists its rows above the edge, keeps its rivals at it; the last to finish decides them.

    A request's own rows come first. `near` int32 [requests, 2, capacity]: last 20 bits and number of each rival.
    """
    if EARLY:
        gdc_wait()
    request, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    total = tl.load(counts + request)
    want = tl.minimum(k, total)
    edge, above = tl.load(edges + request * 2), tl.load(edges + request * 2 + 1)
    list_at = listed + request.to(tl.int64) * list_stride
    near_at = near + request.to(tl.int64) * (2 * capacity)
    first = want * 0
    if OWN > 0:
        first = tl.load(own_counts + request)
    if tile == 0:
        if OWN > 0:
            spot = tl.arange(0, OWN)
            tl.store(list_at + spot, tl.load(own + request * OWN + spot), mask=spot < first)
        tl.store(listed_counts + request, first + want)
        tl.store(bins + request * BINS + tl.arange(0, BINS), tl.zeros([BINS], tl.int32))
    each = tl.arange(0, TILES)
    held = tl.load(found + request * tiles + each, mask=each < tiles, other=0)
    rivals = tl.sum(held >> 16, 0)
    sure = tl.sum(tl.where(each < tile, held & 0xFFFF, 0), 0)
    rival_at = tl.sum(tl.where(each < tile, held >> 16, 0), 0)
    slots = tl.arange(0, ROWS)
    place = tile * ROWS + slots
    there = place < total
    order = tl.load(scores + request.to(tl.int64) * capacity + place, mask=there, other=0)
    at = (order >> 20) + BINS // 2
    inside, rival = there & (at > edge), there & (at == edge)
    one = inside.to(tl.int32) + (rival.to(tl.int32) << 16)
    before = tl.cumsum(one, 0) - one
    page = tl.load(table + request.to(tl.int64) * table_stride + place // TOKENS, mask=inside | rival, other=0)
    number = page * TOKENS + place % TOKENS
    tl.store(list_at + first + sure + (before & 0xFFFF), number, mask=inside)
    tl.store(near_at + rival_at + (before >> 16), order & 0xFFFFF, mask=rival)
    tl.store(near_at + capacity + rival_at + (before >> 16), number, mask=rival)
    tl.debug_barrier()
    if tl.atomic_add(done + request, 1, sem="acq_rel", scope="gpu") == tiles - 1:
        tl.store(done + request, 0)
        decide(near_at, list_at + first + above, rivals, want - above, capacity, ROWS)


@triton.jit
def decide(near_at, list_at, rivals, need, capacity, ROWS: tl.constexpr):
    """List the best `need` of the rivals: by their last 20 bits, four at a time from the highest on, then the first."""
    slots, cuts = tl.arange(0, ROWS), tl.arange(0, 16)
    low = need * 0
    for step in tl.static_range(5):
        cut = low + (cuts << (16 - 4 * step))
        reached = cuts * 0
        for start in range(0, rivals, ROWS):
            order = tl.load(near_at + start + slots, mask=start + slots < rivals, other=-1, cache_modifier=".cg")
            reached += tl.sum((order[:, None] >= cut[None, :]).to(tl.int32), 0)
        low += tl.max(tl.where(reached >= need, cuts, 0), 0) << (16 - 4 * step)
    beyond = need * 0
    for start in range(0, rivals, ROWS):
        order = tl.load(near_at + start + slots, mask=start + slots < rivals, other=-1, cache_modifier=".cg")
        beyond += tl.sum((order > low).to(tl.int32), 0)
    taken, tied = need * 0, need * 0
    for start in range(0, rivals, ROWS):
        there = start + slots < rivals
        order = tl.load(near_at + start + slots, mask=there, other=-1, cache_modifier=".cg")
        number = tl.load(near_at + capacity + start + slots, mask=there, other=0, cache_modifier=".cg")
        equal = (order == low).to(tl.int32)
        rank = tied + tl.cumsum(equal, 0) - equal
        chosen = (order > low) | ((equal == 1) & (rank < need - beyond))
        one = chosen.to(tl.int32)
        tl.store(list_at + taken + tl.cumsum(one, 0) - one, number, mask=chosen)
        taken += tl.sum(one, 0)
        tied += tl.sum(equal, 0)


class Picker:
    """Fixed buffers for one batch; every layer may use them in turn, on one stream. ``tile``: rows to a program."""

    def __init__(self, shape: LatentShape, batch: LatentBatch, processors: int, tile: int = 2048) -> None:
        device, requests = batch.table.device, batch.requests
        self.shape, self.batch, self.processors = shape, batch, processors
        self.capacity, self.tile = batch.most_rows, tile
        self.tiles = -(-self.capacity // tile)

        def whole(*size: int) -> torch.Tensor:
            return torch.zeros(requests, *size, dtype=torch.int32, device=device)

        self.scores, self.bins, self.near = whole(self.capacity), whole(BINS), whole(2, self.capacity)
        self.edges, self.found, self.done = whole(2), whole(self.tiles), whole()

    def pick(
        self, queries: torch.Tensor, weights: torch.Tensor, pool: LatentPool, listed: torch.Tensor, counts: torch.Tensor
    ) -> None:
        """As `LatentReads.select`; row numbers into ``listed`` int32 [requests, n], how many into ``counts``."""
        batch, shape = self.batch, self.shape
        early = starts_early(weights.device)
        self.score(queries, weights, pool)
        grid = (batch.requests * self.tiles,)
        mark_rows[grid](
            self.scores, self.bins, batch.counts, self.edges, self.found, self.capacity, self.tiles, shape.top_k,
            BINS=BINS, ROWS=self.tile, EARLY=early, num_warps=8, launch_pdl=early,
        )  # fmt: skip
        pick_rows[grid](
            self.scores, self.bins, batch.table, batch.counts, batch.own, batch.own_counts, self.edges, self.found,
            self.near, self.done, listed, counts, self.capacity, self.tiles, batch.table.stride(0), listed.stride(0),
            shape.top_k,
            BINS=BINS, TOKENS=shape.page_tokens, OWN=shape.window, ROWS=self.tile,
            TILES=triton.next_power_of_2(self.tiles), EARLY=early, num_warps=8, launch_pdl=early,
        )  # fmt: skip

    def score(self, queries: torch.Tensor, weights: torch.Tensor, pool: LatentPool) -> None:
        batch, shape = self.batch, self.shape
        early = starts_early(weights.device)
        parts = max(1, min(batch.width, SCORERS * self.processors // batch.requests))
        score_rows[(batch.requests * parts,)](
            queries.view(torch.int8), weights, pool.keys.view(torch.int8), batch.table, batch.counts, self.scores,
            self.bins, parts, self.capacity, batch.table.stride(0),
            HEADS=shape.index_heads, LANES=max(16, triton.next_power_of_2(shape.index_heads)), DIM=shape.index_dim,
            TOKENS=shape.page_tokens, BINS=BINS, STAGES=4, UPCAST=INTERPRETED, EARLY=early,
            num_warps=4, launch_pdl=early,
        )  # fmt: skip
