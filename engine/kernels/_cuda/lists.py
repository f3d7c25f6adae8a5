# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""List every page of each (request, kv head), for attention that leaves nothing out: each layer has its own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels._cuda.pool import PAGE_BITS, PagedPool, number_of
from engine.kernels._cuda.worklist import WorkList

CHUNK = 1024


@triton.jit(do_not_specialize=["pairs", "pool_blocks", "table_stride", "capacity"])
def list_pages(
    table, lens, place, pages, counts, tail, heads, pairs, pool_blocks, table_stride, capacity,
    TOKENS: tl.constexpr, CHUNK: tl.constexpr, FORMS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Program: one pair. A list for hot pages and one for each cold form, in the order of the context."""
    pair = tl.program_id(0)
    request, head = pair // heads, pair % heads
    context = tl.load(lens + request)
    blocks = tl.cdiv(context, TOKENS)
    hot_at = pages + pair.to(tl.int64) * capacity
    n_hot = context * 0
    start = context * 0
    while start < blocks:
        spot = start + tl.arange(0, CHUNK)
        there = spot < blocks
        block = tl.load(table + request * table_stride + spot, mask=there, other=0)
        held = tl.load(place + head * pool_blocks + block, mask=there, other=-1)
        hot = (held >= 0).to(tl.int32)
        tl.store(hot_at + n_hot + tl.cumsum(hot, 0) - hot, held, mask=held >= 0)
        n_hot += tl.sum(hot, 0)
        start += CHUNK
    tl.store(counts + pair, n_hot)
    for i in tl.static_range(len(FORMS)):
        cold_at = pages + (pair + (i + 1) * pairs).to(tl.int64) * capacity
        n_cold = context * 0
        start = context * 0
        while start < blocks:
            spot = start + tl.arange(0, CHUNK)
            there = spot < blocks
            block = tl.load(table + request * table_stride + spot, mask=there, other=0)
            held = tl.load(place + head * pool_blocks + block, mask=there, other=-1)
            mine = (held < -1) & ((-2 - held) >> BITS == FORMS[i])
            one = mine.to(tl.int32)
            tl.store(cold_at + n_cold + tl.cumsum(one, 0) - one, (-2 - held) & ((1 << BITS) - 1), mask=mine)
            n_cold += tl.sum(one, 0)
            start += CHUNK
        tl.store(counts + (i + 1) * pairs + pair, n_cold)
    if head == 0:
        tl.store(tail + request, tl.where(context > 0, (context - 1) % TOKENS + 1, 0))


def list_all(pool: PagedPool, table: torch.Tensor, lens: torch.Tensor, work: WorkList) -> None:
    """table int32 [requests, blocks], lens int32 [requests] -> the lists of `work`; no page may lie in host memory."""
    list_pages[(work.pairs,)](
        table, lens, pool.place, work.pages, work.counts, work.tail, pool.geometry.kv_heads, work.pairs,
        len(pool.place), table.stride(0), work.capacity,
        TOKENS=pool.geometry.block_tokens, CHUNK=CHUNK, FORMS=tuple(number_of(form) for form in pool.forms),
        BITS=PAGE_BITS,
    )  # fmt: skip
