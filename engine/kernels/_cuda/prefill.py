# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Attention of a prompt chunk over the pages stored so far, and the attention mass that some of its queries give.

A tile of queries is a few tokens with all query heads of one kv head, so that a page is read once for the whole group.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels._cuda.attend import LOG2_E
from engine.kernels._cuda.page import INTERPRETED, page_at
from engine.kernels._cuda.pool import PAGE_BITS, PagedPool, constants

ROWS, WARPS, STAGES = 128, 8, 2


@triton.jit
def load_page(
    hot, data, held, kind: tl.constexpr, FORMS: tl.constexpr, TILES: tl.constexpr, PAGES: tl.constexpr,
    PER_SLABS: tl.constexpr, SLABS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, DIM: tl.constexpr,
    TOKENS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """k, v [TOKENS, DIM] of the page that `held` names, and its tokens; zeros, and nothing read, where none is."""
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    tile = slots[:, None] * DIM + columns[None, :]
    there = slots * 0 + held >= 0
    base = hot + tl.maximum(held, 0).to(tl.int64) * (2 * TOKENS * DIM)
    k = tl.load(base + tile, mask=there[:, None], other=0.0).to(kind)
    v = tl.load(base + TOKENS * DIM + tile, mask=there[:, None], other=0.0).to(kind)
    for i in tl.static_range(len(FORMS)):
        code = -2 - held
        live = (held < -1) & (code >> BITS == FORMS[i])
        at = page_at(data, tl.where(live, code & ((1 << BITS) - 1), 0), SLABS[i], PER_SLABS[i], PAGES[i])
        cold_k, cold_v, mine = TILES[i](at, live, kind, DIM, TOKENS, RANK, KEPT)
        k = tl.where(mine[:, None], cold_k, k)
        v = tl.where(mine[:, None], cold_v, v)
        there = there | mine
    return k, v, there


@triton.jit(do_not_specialize=["start", "queries", "sight", "pool_blocks"])
def prefill_pages(
    q, out, mass_at, hot, data, table, place, start, queries, sight, heads, pool_blocks, scale,
    GROUP: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    FORMS: tl.constexpr, TILES: tl.constexpr, PAGES: tl.constexpr, PER_SLABS: tl.constexpr, SLABS: tl.constexpr,
    RANK: tl.constexpr, KEPT: tl.constexpr, SOURCES: tl.constexpr, BITS: tl.constexpr, UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (tile, kv head): q, out [queries, heads * GROUP, DIM] of tokens from `start`; `scale` includes log2(e).

    `mass_at` [queries, heads * GROUP] gets log2 of each softmax's sum. `sight` 0 sees everything.
    """
    tile, head = tl.program_id(0), tl.program_id(1)
    QUERIES: tl.constexpr = ROWS // LANES
    rows, columns, slots = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, TOKENS)
    token, lane = tile * QUERIES + rows // LANES, rows % LANES
    real = (token < queries) & (lane < GROUP)
    position = start + token
    at = (token * heads + head) * GROUP + lane
    mine = tl.load(q + at[:, None] * DIM + columns[None, :], mask=real[:, None], other=0.0)
    kind: tl.constexpr = tl.float32 if UPCAST else mine.dtype
    mine = mine.to(kind)
    top = tl.full([ROWS], -1e30, tl.float32)
    sums = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    earliest = tl.where(sight > 0, tl.maximum(start + tile * QUERIES - sight + 1, 0), 0)
    last = start + tl.minimum((tile + 1) * QUERIES, queries) - 1
    reach = tl.where(sight > 0, sight, last + 1)
    j = earliest // TOKENS
    while j <= last // TOKENS:
        held = tl.load(place + head * pool_blocks + tl.load(table + j))
        k, v, there = load_page(
            hot, data, held, kind, FORMS, TILES, PAGES, PER_SLABS, SLABS, RANK, KEPT, DIM, TOKENS, BITS
        )
        behind = position[:, None] - (j * TOKENS + slots)[None, :]
        seen = (behind >= 0) & (behind < reach) & there[None, :]
        # What lies beyond the newest token was never written: zero weights must not meet NaN.
        v = tl.where((j * TOKENS + slots <= last)[:, None], v, 0.0).to(kind)
        s = tl.dot(mine, tl.trans(k), input_precision=PRECISION).to(tl.float32) * scale
        s = tl.where(seen, s, -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        weight = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        sums = sums * shrink + tl.sum(weight, 1)
        acc = tl.dot(weight.to(kind), v, acc * shrink[:, None], input_precision=PRECISION)
        top = higher
        j += 1
    total = tl.where(sums == 0.0, 1.0, sums)
    tl.store(mass_at + at, top + tl.log2(total), mask=real)
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + at[:, None] * DIM + columns[None, :], result, mask=real[:, None])


@triton.jit(do_not_specialize=["start", "queries", "sight", "pool_blocks"])
def observe_pages(
    q, mass_at, mass, hot, data, table, place, start, queries, sight, heads, pool_blocks, scale,
    GROUP: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    FORMS: tl.constexpr, TILES: tl.constexpr, PAGES: tl.constexpr, PER_SLABS: tl.constexpr, SLABS: tl.constexpr,
    RANK: tl.constexpr, KEPT: tl.constexpr, SOURCES: tl.constexpr, BITS: tl.constexpr, UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (block, kv head): what ROWS / LANES queries or fewer from `start` give it, into mass [blocks, heads]."""
    j, head = tl.program_id(0), tl.program_id(1)
    rows, columns, slots = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, TOKENS)
    token, lane = rows // LANES, rows % LANES
    real = (token < queries) & (lane < GROUP)
    at = (token * heads + head) * GROUP + lane
    mine = tl.load(q + at[:, None] * DIM + columns[None, :], mask=real[:, None], other=0.0)
    kind: tl.constexpr = tl.float32 if UPCAST else mine.dtype
    held = tl.load(place + head * pool_blocks + tl.load(table + j))
    k, _, there = load_page(hot, data, held, kind, FORMS, TILES, PAGES, PER_SLABS, SLABS, RANK, KEPT, DIM, TOKENS, BITS)
    behind = (start + token)[:, None] - (j * TOKENS + slots)[None, :]
    seen = real[:, None] & (behind >= 0) & there[None, :]
    seen = seen & (behind < tl.where(sight > 0, sight, start + queries))
    s = tl.dot(mine.to(kind), tl.trans(k), input_precision=PRECISION).to(tl.float32) * scale
    whole = tl.load(mass_at + at, mask=real, other=0.0)
    weight = tl.where(seen, tl.exp2(tl.where(seen, s, 0.0) - whole[:, None]), 0.0)
    tl.store(mass + j * heads + head, tl.sum(tl.sum(weight, 1), 0))


def attend_chunk(
    q: torch.Tensor, pool: PagedPool, table: torch.Tensor, start: int, window: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [queries, q_heads, d] of tokens from `start`, whose rows are stored; table int32 [blocks].

    The result, and log2 of each softmax's sum, float32 [queries, q_heads]: what `observe` wants.
    """
    q = q.contiguous()
    out = torch.empty_like(q)
    mass_at = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    lanes = triton.next_power_of_2(pool.geometry.group)
    rows = max(ROWS, lanes)
    prefill_pages[(-(-len(q) * lanes // rows), pool.geometry.kv_heads)](
        q, out, mass_at, *_places(pool, table), start, len(q), window, *_shape(pool),
        ROWS=rows, **_constants(pool, q), num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out, mass_at


def observe(
    q: torch.Tensor,
    mass_at: torch.Tensor,
    pool: PagedPool,
    table: torch.Tensor,
    start: int,
    blocks: int,
    most: int,
    window: int = 0,
) -> torch.Tensor:
    """Attention mass, summed over q [queries, q_heads, d] from `start`: float32 [blocks, kv_heads].

    `most` is a power of two that no call's queries exceed.
    """
    shape = pool.geometry
    mass = torch.empty(blocks, shape.kv_heads, device=q.device)
    if blocks:
        rows = max(16, most * triton.next_power_of_2(shape.group))
        observe_pages[(blocks, shape.kv_heads)](
            q.contiguous(), mass_at.contiguous(), mass, *_places(pool, table), start, len(q), window, *_shape(pool),
            ROWS=rows, **_constants(pool, q), num_warps=4,
        )  # fmt: skip
    return mass


def _places(pool: PagedPool, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return pool.hot, pool.data.view(torch.int8), table, pool.place


def _shape(pool: PagedPool) -> tuple[int, int, float]:
    return pool.geometry.kv_heads, len(pool.place), pool.geometry.head_dim**-0.5 * LOG2_E


def _constants(pool: PagedPool, q: torch.Tensor) -> dict[str, object]:
    shape = pool.geometry
    return {
        "GROUP": shape.group, "LANES": triton.next_power_of_2(shape.group), "DIM": shape.head_dim,
        "TOKENS": shape.block_tokens, "BITS": PAGE_BITS, "UPCAST": INTERPRETED,
        "PRECISION": "ieee" if q.dtype == torch.float32 else "tf32", **constants(pool, folds=False),
    }  # fmt: skip
