# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Decode attention over a work list, in one launch: programs share a pair's pages, and the last to finish joins them.

A pair is one (request, kv head). Part p of n reads entries p, p + n, p + 2n... of the hot list, then of the cold list:
no branch in either loop, and the first page is known before the count is. Ranges, not `while`: only they are pipelined.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels._cuda.pool import PagedPool
from engine.kernels._cuda.worklist import WorkList

LOG2_E = 1.4426950408889634
# Parts joined at a time: all their loads are in flight together.
STEP = 8
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def fold(s, top, weights, acc, scale):
    """Weights of scores s [ROWS, TOKENS] against the new peak, and what was gathered so far shrunk to it."""
    higher = tl.maximum(top, tl.max(s, 1))
    shrink = tl.exp2((top - higher) * scale)
    weight = tl.exp2(s * scale - (higher * scale)[:, None])
    return higher, weights * shrink[:, None] + weight, acc * shrink[:, None], weight


@triton.jit
def read_hot(
    mine, top, weights, acc, hot, entry, count, part, parts, tail, scale,
    DIM: tl.constexpr, TOKENS: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    slots = tl.arange(0, TOKENS)
    tile = slots[:, None] * DIM + tl.arange(0, DIM)[None, :]
    page = tl.load(entry)
    rounds = (count - part + parts - 1) // parts
    for i in tl.range(0, rounds, num_stages=STAGES):
        following = tl.load(entry + (i + 1) * parts)
        filled = tl.where(part + i * parts == count - 1, tail, TOKENS)
        there = slots < filled
        base = hot + page.to(tl.int64) * (2 * TOKENS * DIM)
        k = tl.load(base + tile, mask=there[:, None], other=0.0).to(kind)
        v = tl.load(base + TOKENS * DIM + tile, mask=there[:, None], other=0.0).to(kind)
        s = tl.dot(mine, tl.trans(k), input_precision=PRECISION).to(tl.float32)
        s = tl.where(there[None, :], s, -float("inf"))
        top, weights, acc, weight = fold(s, top, weights, acc, scale)
        acc = tl.dot(weight.to(kind), v, acc, input_precision=PRECISION)
        page = following
    return top, weights, acc


@triton.jit
def read_cold(
    mine, top, weights, acc, cold, scales, entry, count, part, parts, scale,
    DIM: tl.constexpr, TOKENS: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scales are per token: K's multiply scores, V's multiply weights, so that int8 goes into the product as it is."""
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    k_tile = slots[:, None] * DIM + columns[None, :]
    v_tile = columns[:, None] * TOKENS + slots[None, :]
    page = tl.load(entry)
    rounds = (count - part + parts - 1) // parts
    for i in tl.range(0, rounds, num_stages=STAGES):
        following = tl.load(entry + (i + 1) * parts)
        base = cold + page.to(tl.int64) * (2 * TOKENS * DIM)
        k = tl.load(base + k_tile)
        v = tl.load(base + TOKENS * DIM + v_tile)
        k_scale = tl.load(scales + page * (2 * TOKENS) + slots)
        v_scale = tl.load(scales + page * (2 * TOKENS) + TOKENS + slots)
        s = tl.dot(mine, tl.trans(k.to(kind)), input_precision=PRECISION).to(tl.float32) * k_scale[None, :]
        top, weights, acc, weight = fold(s, top, weights, acc, scale)
        acc = tl.dot((weight * v_scale[None, :]).to(kind), tl.trans(v.to(kind)), acc, input_precision=PRECISION)
        page = following
    return top, weights, acc


@triton.jit
def join_parts(
    part_at, peaks, totals, out_at, first, parts, scale,
    GROUP: tl.constexpr, LANES: tl.constexpr, DIM: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the pair's result from its parts in slots first.. first + parts; zeros where no page was read."""
    lanes, columns = tl.arange(0, LANES), tl.arange(0, DIM)
    top = tl.full([LANES], -1e30, tl.float32)
    sums = tl.zeros([LANES], tl.float32)
    acc = tl.zeros([LANES, DIM], tl.float32)
    for start in range(0, parts, STEP):
        slot = start + tl.arange(0, STEP)
        there = (slot < parts)[:, None] & (lanes < GROUP)[None, :]
        at = (first + slot)[:, None] * GROUP + lanes[None, :]
        peak = tl.load(peaks + at, mask=there, other=-1e30, cache_modifier=".cg")
        total = tl.load(totals + at, mask=there, other=0.0, cache_modifier=".cg")
        part = tl.load(
            part_at + at[:, :, None] * DIM + columns[None, None, :], mask=there[:, :, None], other=0.0,
            cache_modifier=".cg",
        )  # fmt: skip
        higher = tl.maximum(top, tl.max(peak, 0))
        shrink = tl.exp2((top - higher) * scale)
        share = tl.exp2((peak - higher[None, :]) * scale)
        sums = sums * shrink + tl.sum(total * share, 0)
        acc = acc * shrink[:, None] + tl.sum(part * share[:, :, None], 0)
        top = higher
    acc = acc / tl.where(sums == 0.0, 1.0, sums)[:, None]
    tl.store(
        out_at + lanes[:, None] * DIM + columns[None, :], acc.to(out_at.dtype.element_ty),
        mask=(lanes < GROUP)[:, None],
    )  # fmt: skip


@triton.jit(do_not_specialize=["pairs", "capacity", "parts"])
def attend_pages(
    q, out, hot, cold, scales, pages, counts, tail, plan, part_at, peaks, totals, done,
    scale, heads, pairs, capacity, parts,
    GROUP: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    PLANNED: tl.constexpr, COLD: tl.constexpr, STAGES: tl.constexpr, COLD_STAGES: tl.constexpr,
    STEP: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """q, out [pairs, GROUP, DIM]. `scale` includes log2(e). `plan` int32 [programs, 4] replaces `parts` if PLANNED."""
    program = tl.program_id(0)
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if PLANNED:
        pair, part = tl.load(plan + program * 4), tl.load(plan + program * 4 + 1)
        parts, first = tl.load(plan + program * 4 + 2), tl.load(plan + program * 4 + 3)
        if pair < 0:
            return
    else:
        pair, part = program // parts, program % parts
        first = program - part
    rows, columns = tl.arange(0, ROWS), tl.arange(0, DIM)
    real = (rows < GROUP)[:, None]
    mine = tl.load(q + (pair * GROUP + rows[:, None]) * DIM + columns[None, :], mask=real, other=0.0)
    kind: tl.constexpr = tl.float32 if UPCAST else mine.dtype
    mine = mine.to(kind)
    top = tl.full([ROWS], -1e30, tl.float32)
    weights = tl.zeros([ROWS, TOKENS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    entry = pages + pair.to(tl.int64) * capacity + part
    top, weights, acc = read_hot(
        mine, top, weights, acc, hot, entry, tl.load(counts + pair), part, parts, tl.load(tail + pair // heads), scale,
        DIM, TOKENS, STAGES, kind, PRECISION,
    )  # fmt: skip
    if COLD:
        top, weights, acc = read_cold(
            mine, top, weights, acc, cold, scales, pages + (pair + pairs).to(tl.int64) * capacity + part,
            tl.load(counts + pairs + pair), part, parts, scale, DIM, TOKENS, COLD_STAGES, kind, PRECISION,
        )  # fmt: skip
    sums = tl.sum(weights, 1)
    if parts == 1:
        acc = acc / tl.where(sums == 0.0, 1.0, sums)[:, None]
        own = out + (pair * GROUP + rows[:, None]) * DIM + columns[None, :]
        tl.store(own, acc.to(out.dtype.element_ty), mask=real)
    else:
        at = (first + part) * GROUP + rows
        tl.store(peaks + at, top, mask=rows < GROUP)
        tl.store(totals + at, sums, mask=rows < GROUP)
        tl.store(part_at + at[:, None] * DIM + columns[None, :], acc, mask=real)
        tl.debug_barrier()
        before = tl.atomic_add(done + pair, 1, sem="acq_rel", scope="gpu")
        if before == parts - 1:
            tl.store(done + pair, 0)
            join_parts(part_at, peaks, totals, out + pair * GROUP * DIM, first, parts, scale, GROUP, LANES, DIM, STEP)


@dataclass(frozen=True)
class Launch:
    """How to cut and run: programs to a pair, warps, and pages in flight per program, hot and cold."""

    parts: int
    warps: int = 4
    stages: int = 3
    cold_stages: int = 4
    dependent: bool = False


def attend(
    q: torch.Tensor,
    out: torch.Tensor,
    pool: PagedPool,
    work: WorkList,
    scale: float,
    launch: Launch,
    plan: torch.Tensor | None = None,
) -> torch.Tensor:
    """q, out [requests, q_heads, head_dim] in the pool's type; `plan` from `share_out`, on the device.

    head_dim and block_tokens must be powers of two of at least 16. Raises ValueError for more parts than there is room.
    """
    shape, space = pool.geometry, work.space
    programs = work.pairs * launch.parts if plan is None else len(plan)
    if programs > len(space.peaks):
        raise ValueError(f"attend: {programs} programs, expected at most {len(space.peaks)}")
    lanes = triton.next_power_of_2(shape.group)
    attend_pages[(programs,)](
        q, out, pool.hot, pool.cold, pool.scales, work.pages, work.counts, work.tail,
        space.done if plan is None else plan, space.part, space.peaks, space.totals, space.done,
        scale * LOG2_E, shape.kv_heads, work.pairs, work.capacity, launch.parts,
        GROUP=shape.group, LANES=lanes, ROWS=max(16, lanes), DIM=shape.head_dim, TOKENS=shape.block_tokens,
        PLANNED=plan is not None, COLD=len(pool.cold) > 0, STAGES=launch.stages,
        COLD_STAGES=launch.cold_stages, STEP=STEP,
        UPCAST=INTERPRETED, PRECISION="ieee" if q.dtype == torch.float32 else "tf32", DEPENDENT=launch.dependent,
        num_warps=launch.warps, **({"launch_pdl": True} if launch.dependent else {}),
    )  # fmt: skip
    return out
