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
SCORED = 128
PICKED = 8192


@triton.jit
def ordered(score):
    """Float32 as int32 that sort as the floats do."""
    bits = score.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit(do_not_specialize=["tiles", "capacity", "table_stride"])
def score_rows(
    queries, weights, keys, table, counts, scores, bins, tiles, capacity, table_stride,
    HEADS: tl.constexpr, LANES: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, UNITS: tl.constexpr,
    BINS: tl.constexpr, UPCAST: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (request, UNITS rows): their scores as ordered int32, [requests, capacity], counted in bins [.., BINS].

    queries, keys as int8 of e4m3 bits; a page of keys is TOKENS of them, then their float32 scales.
    """
    if EARLY:
        gdc_wait()
    request, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    count = tl.load(counts + request)
    if tile * UNITS >= count:
        return
    PAGE: tl.constexpr = TOKENS * (DIM + 4)
    place, columns, heads = tile * UNITS + tl.arange(0, UNITS), tl.arange(0, DIM), tl.arange(0, LANES)
    there = place < count
    page = tl.load(table + request * table_stride + place // TOKENS, mask=there, other=0)
    base = keys + page.to(tl.int64) * PAGE
    slot = place % TOKENS
    key = tl.load((base + slot * DIM)[:, None] + columns[None, :], mask=there[:, None], other=0)
    scale = tl.load(as_floats(base + TOKENS * DIM) + slot, mask=there, other=0.0)
    mine = queries + (request * HEADS + heads) * DIM
    query = tl.load(mine[:, None] + columns[None, :], mask=(heads < HEADS)[:, None], other=0)
    weight = tl.load(weights + request * HEADS + heads, mask=heads < HEADS, other=0.0)
    key, query = key.to(tl.float8e4nv, bitcast=True), query.to(tl.float8e4nv, bitcast=True)
    if UPCAST:
        reach = tl.dot(key.to(tl.float32), tl.trans(query.to(tl.float32)), input_precision="ieee")
    else:
        reach = tl.dot(key, tl.trans(query)).to(tl.float32)
    score = tl.sum(tl.maximum(reach, 0.0) * weight[None, :], 1) * scale
    order = ordered(score)
    tl.store(scores + request.to(tl.int64) * capacity + place, order, mask=there)
    tl.atomic_add(bins + request * BINS + (order >> 20) + BINS // 2, 1, mask=there, sem="relaxed")


@triton.jit(do_not_specialize=["capacity", "table_stride", "list_stride", "k"])
def pick_rows(
    scores, bins, table, counts, own, own_counts, near, listed, listed_counts, capacity, table_stride, list_stride, k,
    BINS: tl.constexpr, TOKENS: tl.constexpr, OWN: tl.constexpr, CHUNK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program: one request. Lists its own rows, then its best k; `near` int32 [requests, 2, capacity] is for rivals."""
    if EARLY:
        gdc_wait()
    request = tl.program_id(0)
    total = tl.load(counts + request)
    want = tl.minimum(k, total)
    list_at = listed + request.to(tl.int64) * list_stride
    score_at = scores + request.to(tl.int64) * capacity
    table_at = table + request.to(tl.int64) * table_stride
    near_at = near + request.to(tl.int64) * (2 * capacity)
    first = want * 0
    if OWN > 0:
        first = tl.load(own_counts + request)
        spot = tl.arange(0, OWN)
        tl.store(list_at + spot, tl.load(own + request * OWN + spot), mask=spot < first)
    tl.store(listed_counts + request, first + want)
    # The last bin whose scores and those above it are at least as many as wanted.
    places = tl.arange(0, BINS)
    held = tl.load(bins + request * BINS + places)
    tl.store(bins + request * BINS + places, tl.zeros([BINS], tl.int32))
    below = tl.cumsum(held, 0)
    reaches = (total - (below - held) >= want) & (want > 0)
    edge = tl.max(tl.where(reaches, places, -1), 0)
    above = total - tl.sum(tl.where(places == edge, below, 0), 0)
    slots = tl.arange(0, CHUNK)
    sure, rivals = want * 0, want * 0
    for start in range(0, total, CHUNK):
        place = start + slots
        there = place < total
        order = tl.load(score_at + place, mask=there, other=0)
        at = (order >> 20) + BINS // 2
        inside, rival = there & (at > edge), there & (at == edge)
        one = inside.to(tl.int32) + (rival.to(tl.int32) << 16)
        before = tl.cumsum(one, 0) - one
        page = tl.load(table_at + place // TOKENS, mask=inside | rival, other=0)
        number = page * TOKENS + place % TOKENS
        tl.store(list_at + first + sure + (before & 0xFFFF), number, mask=inside)
        to = rivals + (before >> 16)
        tl.store(near_at + to, order & 0xFFFFF, mask=rival)
        tl.store(near_at + capacity + to, number, mask=rival)
        both = tl.sum(one, 0)
        sure += both & 0xFFFF
        rivals += both >> 16
    tl.debug_barrier()
    need = want - above
    # The least `low` with fewer than `need` rivals above it: their last 20 bits, from the highest on.
    low = want * 0
    for bit in range(19, -1, -1):
        cut = low + (want * 0 + 1 << bit)
        held_above = want * 0
        for start in range(0, rivals, CHUNK):
            place = start + slots
            order = tl.load(near_at + place, mask=place < rivals, other=-1)
            held_above += tl.sum((order >= cut).to(tl.int32), 0)
        low = tl.where(held_above >= need, cut, low)
    beyond = want * 0
    for start in range(0, rivals, CHUNK):
        place = start + slots
        order = tl.load(near_at + place, mask=place < rivals, other=-1)
        beyond += tl.sum((order > low).to(tl.int32), 0)
    ties = need - beyond
    taken, tied = want * 0, want * 0
    for start in range(0, rivals, CHUNK):
        place = start + slots
        order = tl.load(near_at + place, mask=place < rivals, other=-1)
        number = tl.load(near_at + capacity + place, mask=place < rivals, other=0)
        equal = (order == low).to(tl.int32)
        rank = tied + tl.cumsum(equal, 0) - equal
        chosen = (order > low) | ((equal == 1) & (rank < ties))
        one = chosen.to(tl.int32)
        to = first + above + taken + tl.cumsum(one, 0) - one
        tl.store(list_at + to, number, mask=chosen)
        taken += tl.sum(one, 0)
        tied += tl.sum(equal, 0)


class Picker:
    """Fixed buffers for one batch; every layer may use them in turn, on one stream."""

    def __init__(self, shape: LatentShape, batch: LatentBatch) -> None:
        device = batch.table.device
        self.shape, self.batch = shape, batch
        self.capacity = batch.most_rows
        self.scores = torch.zeros(batch.requests, self.capacity, dtype=torch.int32, device=device)
        self.bins = torch.zeros(batch.requests, BINS, dtype=torch.int32, device=device)
        self.near = torch.zeros(batch.requests, 2, self.capacity, dtype=torch.int32, device=device)

    def pick(
        self, queries: torch.Tensor, weights: torch.Tensor, pool: LatentPool, listed: torch.Tensor, counts: torch.Tensor
    ) -> None:
        """As `LatentReads.select`; row numbers into ``listed`` int32 [requests, n], how many into ``counts``."""
        batch, shape = self.batch, self.shape
        early = starts_early(weights.device)
        self.score(queries, weights, pool)
        chunk = min(PICKED, max(128, triton.next_power_of_2(self.capacity)))
        pick_rows[(batch.requests,)](
            self.scores, self.bins, batch.table, batch.counts, batch.own, batch.own_counts, self.near, listed, counts,
            self.capacity, batch.table.stride(0), listed.stride(0), shape.top_k,
            BINS=BINS, TOKENS=shape.page_tokens, OWN=shape.window, CHUNK=chunk, EARLY=early,
            num_warps=32 if chunk >= 4096 else 8, launch_pdl=early,
        )  # fmt: skip

    def score(self, queries: torch.Tensor, weights: torch.Tensor, pool: LatentPool) -> None:
        batch, shape = self.batch, self.shape
        tiles = -(-self.capacity // SCORED)
        early = starts_early(weights.device)
        score_rows[(batch.requests * tiles,)](
            queries.view(torch.int8), weights, pool.keys.view(torch.int8), batch.table, batch.counts, self.scores,
            self.bins, tiles, self.capacity, batch.table.stride(0),
            HEADS=shape.index_heads, LANES=max(16, triton.next_power_of_2(shape.index_heads)), DIM=shape.index_dim,
            TOKENS=shape.page_tokens, UNITS=SCORED, BINS=BINS, UPCAST=INTERPRETED, EARLY=early,
            num_warps=4, launch_pdl=early,
        )  # fmt: skip
