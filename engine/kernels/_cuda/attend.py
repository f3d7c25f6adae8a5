# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Decode attention over a work list, in one launch: programs share a pair's pages, and the last to finish joins them.

A pair is one (request, kv head). Part p of n reads entries p, p + n, p + 2n... of the hot list, then of each cold
form's: no branch in any loop, and the first page is known before the count is. Ranges, not `while`: only they are
pipelined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from engine.kernels._cuda.page import INTERPRETED, read_tiles, soften
from engine.kernels._cuda.pool import PagedPool, constants
from engine.kernels._cuda.worklist import JOINED, WorkList

LOG2_E = 1.4426950408889634


@cache
def starts_early(device: torch.device) -> bool:
    """Whether a launch can be placed on the device while the one before it ends: NVIDIA's sm_90 and later."""
    if INTERPRETED or device.type != "cuda" or torch.version.cuda is None:
        return False
    return torch.cuda.get_device_capability(device)[0] >= 9


@triton.jit
def read_hot(
    mine, top, weights, acc, hot, entry, count, part, parts, tail, scale,
    DIM: tl.constexpr, TOKENS: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr, PRECISION: tl.constexpr,
    EVICT: tl.constexpr,
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
        k = tl.load(base + tile, mask=there[:, None], other=0.0, eviction_policy=EVICT).to(kind)
        v = tl.load(base + TOKENS * DIM + tile, mask=there[:, None], other=0.0, eviction_policy=EVICT).to(kind)
        s = tl.dot(mine, tl.trans(k), input_precision=PRECISION).to(tl.float32)
        s = tl.where(there[None, :], s, -float("inf"))
        top, weights, acc, weight = soften(s, top, weights, acc, scale)
        acc = tl.dot(weight.to(kind), v, acc, input_precision=PRECISION)
        page = following
    return top, weights, acc


@triton.jit
def join_parts(
    part_at, weight_at, out_at, first, parts,
    GROUP: tl.constexpr, LANES: tl.constexpr, DIM: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the pair's result from its parts in slots first.. first + parts; zeros where no page was read.

    Every value is kept once per output element: threads exchange nothing, and STEP parts are in flight together.
    """
    lanes, columns = tl.arange(0, LANES)[:, None], tl.arange(0, DIM)[None, :]
    real = (lanes < GROUP) & (columns < DIM)
    own = first * (GROUP * DIM) + lanes * DIM + columns
    top = tl.full([LANES, DIM], -1e30, tl.float32)
    sums = tl.zeros([LANES, DIM], tl.float32)
    acc = tl.zeros([LANES, DIM], tl.float32)
    for start in range(0, parts, STEP):
        for step in tl.static_range(STEP):
            there = real & (columns * 0 + start + step < parts)
            at = own + (start + step) * (GROUP * DIM)
            weight = tl.load(weight_at + at, mask=there, other=-1e30, cache_modifier=".cg")
            part = tl.load(part_at + at, mask=there, other=0.0, cache_modifier=".cg")
            higher = tl.maximum(top, weight)
            old, new = tl.exp2(top - higher), tl.exp2(weight - higher)
            sums = sums * old + new
            acc = acc * old + part * new
            top = higher
    # A weight of -1e30 is no page at all: such parts add 1 each to `sums` where there is nothing else, and zeros.
    tl.store(out_at + lanes * DIM + columns, (acc / sums).to(out_at.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["pairs", "capacity", "parts"])
def attend_pages(
    q, out, hot, data, pages, counts, tail, plan, part_at, weight_at, done,
    scale, heads, pairs, capacity, parts,
    GROUP: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    FORMS: tl.constexpr, TILES: tl.constexpr, OWN: tl.constexpr, FOLDS: tl.constexpr, PAGES: tl.constexpr,
    PER_SLABS: tl.constexpr, SLABS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, SOURCES: tl.constexpr,
    PLANNED: tl.constexpr, STAGES: tl.constexpr, COLD_STAGES: tl.constexpr,
    STEP: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr, EVICT: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """q, out [pairs, GROUP, DIM]. `scale` includes log2(e). `plan` int32 [programs, 4] replaces `parts` if PLANNED.

    EARLY: launched while the kernel before still ends. Nothing may be read or written above the wait for its end.
    """
    if EARLY:
        gdc_wait()
    program = tl.program_id(0)
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
        DIM, TOKENS, STAGES, kind, PRECISION, EVICT,
    )  # fmt: skip
    sums = tl.sum(weights, 1)
    for i in tl.static_range(len(FORMS)):
        cold_at = pages + (pair + (i + 1) * pairs).to(tl.int64) * capacity + part
        count = tl.load(counts + (i + 1) * pairs + pair)
        if OWN[i]:
            top, sums, acc = FOLDS[i](
                mine, top, sums, acc, data, cold_at, count, part, parts, scale, SLABS[i], PER_SLABS[i], PAGES[i],
                DIM, TOKENS, ROWS, RANK, KEPT, COLD_STAGES, kind, PRECISION,
            )  # fmt: skip
        else:
            top, sums, acc = read_tiles(
                mine, top, sums, acc, data, cold_at, count, part, parts, scale, TILES[i], SLABS[i], PER_SLABS[i],
                PAGES[i], DIM, TOKENS, ROWS, RANK, KEPT, COLD_STAGES, kind, PRECISION,
            )  # fmt: skip
    acc = acc / tl.where(sums == 0.0, 1.0, sums)[:, None]
    if parts == 1:
        own = out + (pair * GROUP + rows[:, None]) * DIM + columns[None, :]
        tl.store(own, acc.to(out.dtype.element_ty), mask=real)
    else:
        at = ((first + part) * GROUP + rows[:, None]) * DIM + columns[None, :]
        weight = tl.where(sums == 0.0, -1e30, top * scale + tl.log2(tl.where(sums == 0.0, 1.0, sums)))
        tl.store(part_at + at, acc, mask=real)
        tl.store(weight_at + at, weight[:, None] + tl.zeros([ROWS, DIM], tl.float32), mask=real)
        tl.debug_barrier()
        before = tl.atomic_add(done + pair, 1, sem="acq_rel", scope="gpu")
        if before == parts - 1:
            tl.store(done + pair, 0)
            join_parts(part_at, weight_at, out + pair * GROUP * DIM, first, parts, GROUP, LANES, DIM, STEP)


@dataclass(frozen=True)
class Launch:
    """How to cut and run: programs to a pair, warps, pages in flight per program, hot and cold; early if it can."""

    parts: int
    warps: int = 4
    stages: int = 3
    cold_stages: int = 3
    evict: str = ""
    early: bool = True


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
    if programs > len(space.part):
        raise ValueError(f"attend: {programs} programs, expected at most {len(space.part)}")
    lanes = triton.next_power_of_2(shape.group)
    early = launch.early and starts_early(q.device)
    attend_pages[(programs,)](
        q, out, pool.hot, pool.data.view(torch.int8), work.pages, work.counts, work.tail,
        space.done if plan is None else plan, space.part, space.weight, space.done,
        scale * LOG2_E, shape.kv_heads, work.pairs, work.capacity, launch.parts,
        GROUP=shape.group, LANES=lanes, ROWS=max(16, lanes), DIM=shape.head_dim, TOKENS=shape.block_tokens,
        PLANNED=plan is not None, STAGES=launch.stages, COLD_STAGES=launch.cold_stages, STEP=JOINED,
        **constants(pool, folds=True),
        UPCAST=INTERPRETED, PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        EVICT=launch.evict, EARLY=early,
        num_warps=launch.warps, launch_pdl=early,
    )  # fmt: skip
    return out
