# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Decode attention over latent rows: all query heads share a row, whose first LATENT numbers are the value as well.

A row is loaded once and enters two products. Programs share a request's rows; a second launch joins what they found.
Rows are listed by page, whole pages in the order of the context, or one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from engine.kernels._cuda.attend import LOG2_E, starts_early
from engine.kernels._cuda.page import INTERPRETED

MAX_PARTS = 128
JOINED_AT_ONCE = 16


@triton.jit
def row_numbers(listed, at, count, PAGED: tl.constexpr, TOKENS: tl.constexpr, STEP: tl.constexpr):
    """Rows STEP at a time from place `at` of a request's list; beyond its end those of whatever is listed there."""
    if PAGED:
        page = tl.load(listed + tl.minimum(at, count - 1) // TOKENS)
        return page * TOKENS + at % TOKENS + tl.arange(0, STEP)
    place = at + tl.arange(0, STEP)
    return tl.load(listed + tl.minimum(place, count - 1))


@triton.jit(do_not_specialize=["capacity", "parts", "share"])
def attend_rows(
    q, out, rows, listed, counts, part_at, weight_at, scale, capacity, parts, share,
    HEADS: tl.constexpr, LANES: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, PAGED: tl.constexpr,
    TOKENS: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, JOINED: tl.constexpr, TURNED: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """q [requests, HEADS, LATENT + ROPE], out [requests, HEADS, LATENT]; `scale` includes log2(e).

    Program (request, part, group of LANES heads), groups of one part side by side, so that they share its rows in the
    L2; a part is `share` rows, whole pages where PAGED. `counts` int32 [requests]: rows listed for each.
    TURNED: products are taken the other way round, rows or channels by heads, which fills wider instructions.
    """
    if EARLY:
        gdc_wait()
    GROUPS: tl.constexpr = (HEADS + LANES - 1) // LANES
    WIDTH: tl.constexpr = LATENT + ROPE
    program = tl.program_id(0)
    group, part = program % GROUPS, program // GROUPS % parts
    request = program // (GROUPS * parts)
    HALF: tl.constexpr = LATENT // 2
    heads, channels, slots = group * LANES + tl.arange(0, LANES), tl.arange(0, HALF), tl.arange(0, STEP)
    real = (heads < HEADS)[:, None]
    q_at = q + (request * HEADS + heads[:, None]).to(tl.int64) * WIDTH
    mine = tl.load(q_at + channels[None, :], mask=real, other=0.0)
    kind: tl.constexpr = tl.float32 if UPCAST else mine.dtype
    mine = mine.to(kind)
    mine_too = tl.load(q_at + HALF + channels[None, :], mask=real, other=0.0).to(kind)
    if ROPE > 0:
        turned = tl.arange(0, ROPE)
        mine_turned = tl.load(q_at + LATENT + turned[None, :], mask=real, other=0.0).to(kind)
    total = tl.load(counts + request)
    begin = tl.minimum(part * share, total)
    count = tl.minimum(begin + share, total)
    mine_list = listed + request.to(tl.int64) * capacity
    top = tl.full([LANES], -1e30, tl.float32)
    sums = tl.zeros([LANES], tl.float32)
    if TURNED:
        acc = tl.zeros([HALF, LANES], tl.float32)
    else:
        acc = tl.zeros([LANES, HALF], tl.float32)
    acc_too = acc
    number = row_numbers(mine_list, begin, tl.maximum(total, 1), PAGED, TOKENS, STEP)
    for i in tl.range(0, (count - begin + STEP - 1) // STEP, num_stages=STAGES):
        at = begin + i * STEP
        following = row_numbers(mine_list, at + STEP, total, PAGED, TOKENS, STEP)
        there = at + slots < count
        base = rows + number.to(tl.int64)[:, None] * WIDTH
        row = tl.load(base + channels[None, :], mask=there[:, None], other=0.0).to(kind)
        row_too = tl.load(base + HALF + channels[None, :], mask=there[:, None], other=0.0).to(kind)
        if ROPE > 0:
            row_turned = tl.load(base + LATENT + turned[None, :], mask=there[:, None], other=0.0).to(kind)
        # Sums of their own: a product waits for the one it adds to.
        if TURNED:
            s = tl.dot(row, tl.trans(mine), input_precision=PRECISION).to(tl.float32)
            s += tl.dot(row_too, tl.trans(mine_too), input_precision=PRECISION).to(tl.float32)
            if ROPE > 0:
                s = tl.dot(row_turned, tl.trans(mine_turned), s, input_precision=PRECISION)
            s = tl.where(there[:, None], s, -float("inf"))
            higher = tl.maximum(top, tl.max(s, 0))
            shrink = tl.exp2((top - higher) * scale)
            weight = tl.exp2(s * scale - (higher * scale)[None, :])
            top, sums = higher, sums * shrink + tl.sum(weight, 0)
            weight, shrink = weight.to(kind), shrink[None, :]
            acc = tl.dot(tl.trans(row), weight, acc * shrink, input_precision=PRECISION)
            acc_too = tl.dot(tl.trans(row_too), weight, acc_too * shrink, input_precision=PRECISION)
        else:
            s = tl.dot(mine, tl.trans(row), input_precision=PRECISION).to(tl.float32)
            s += tl.dot(mine_too, tl.trans(row_too), input_precision=PRECISION).to(tl.float32)
            if ROPE > 0:
                s += tl.dot(mine_turned, tl.trans(row_turned), input_precision=PRECISION).to(tl.float32)
            s = tl.where(there[None, :], s, -float("inf"))
            higher = tl.maximum(top, tl.max(s, 1))
            shrink = tl.exp2((top - higher) * scale)
            weight = tl.exp2(s * scale - (higher * scale)[:, None])
            top, sums = higher, sums * shrink + tl.sum(weight, 1)
            weight, shrink = weight.to(kind), shrink[:, None]
            acc = tl.dot(weight, row, acc * shrink, input_precision=PRECISION)
            acc_too = tl.dot(weight, row_too, acc_too * shrink, input_precision=PRECISION)
        number = following
    if TURNED:
        acc, acc_too = tl.trans(acc), tl.trans(acc_too)
    share_of = 1.0 / tl.where(sums == 0.0, 1.0, sums)[:, None]
    acc, acc_too = acc * share_of, acc_too * share_of
    lanes = tl.arange(0, LANES)
    if JOINED:
        at = out + (request * HEADS + group * LANES + lanes).to(tl.int64)[:, None] * LATENT + channels[None, :]
        tl.store(at, acc.to(out.dtype.element_ty), mask=real)
        tl.store(at + HALF, acc_too.to(out.dtype.element_ty), mask=real)
    else:
        slot = ((request * GROUPS + group) * parts + part) * LANES + lanes
        weight = tl.where(sums == 0.0, -1e30, top * scale + tl.log2(tl.where(sums == 0.0, 1.0, sums)))
        at = part_at + slot.to(tl.int64)[:, None] * LATENT + channels[None, :]
        tl.store(at, acc)
        tl.store(at + HALF, acc_too)
        tl.store(weight_at + slot, weight)


@triton.jit(do_not_specialize=["parts"])
def join_rows(
    part_at, weight_at, out, parts,
    HEADS: tl.constexpr, LANES: tl.constexpr, LATENT: tl.constexpr, STEP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (request, head): its result from its parts; zeros where there was no row.

    A launch of its own: the last program of a request would have to read all of its parts alone.
    """
    if EARLY:
        gdc_wait()
    request, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    GROUPS: tl.constexpr = (HEADS + LANES - 1) // LANES
    first = (request * GROUPS + head // LANES) * parts
    steps, channels = tl.arange(0, STEP), tl.arange(0, LATENT)
    top = tl.max(tl.zeros([STEP], tl.float32) - 1e30, 0)
    sums = tl.sum(tl.zeros([STEP], tl.float32), 0)
    acc = tl.zeros([LATENT], tl.float32)
    for start in range(0, parts, STEP):
        there = start + steps < parts
        slot = (first + start + steps) * LANES + head % LANES
        weight = tl.load(weight_at + slot, mask=there, other=-1e30)
        at = slot.to(tl.int64)[:, None] * LATENT + channels[None, :]
        part = tl.load(part_at + at, mask=there[:, None], other=0.0)
        higher = tl.maximum(top, tl.max(weight, 0))
        old, new = tl.exp2(top - higher), tl.exp2(weight - higher)
        sums = sums * old + tl.sum(new, 0)
        acc = acc * old + tl.sum(part * new[:, None], 0)
        top = higher
    # A weight of -1e30 is no row at all: such parts add 1 each to `sums` where there is nothing else, and zeros.
    tl.store(out + tl.program_id(0).to(tl.int64) * LATENT + channels, (acc / sums).to(out.dtype.element_ty))


@dataclass(frozen=True)
class RowLaunch:
    """How to cut and run: programs to a request and group of heads, warps, rows at a time, and how many such ahead."""

    parts: int
    lanes: int = 16
    warps: int = 4
    step: int = 32
    stages: int = 3
    turned: bool = False
    early: bool = True


class RowSpace:
    """Where parts wait until they are joined; calls on one stream share it. `weight`: log2 of the softmax's sum."""

    def __init__(self, slots: int, lanes: int, latent: int, device: str | torch.device) -> None:
        self.part = torch.zeros(slots, lanes, latent, device=device)
        self.weight = torch.zeros(slots, lanes, device=device)


def attend_latent(
    q: torch.Tensor,
    out: torch.Tensor,
    rows: torch.Tensor,
    listed: torch.Tensor,
    counts: torch.Tensor,
    space: RowSpace,
    scale: float,
    launch: RowLaunch,
    *,
    page_tokens: int = 0,
) -> torch.Tensor:
    """q [requests, heads, width] over rows [n, width], out [requests, heads, latent].

    ``listed`` int32 [requests, capacity]: pages of ``page_tokens`` rows, or rows one by one where that is 0; ``counts``
    int32 [requests]: rows to read. latent, and what a row has beyond it, must be powers of two of at least 16.
    Raises ValueError for more parts than there is room.
    """
    requests, heads, width = q.shape
    latent, lanes = out.shape[-1], launch.lanes
    groups = -(-heads // lanes)
    if requests * groups * launch.parts > len(space.part):
        raise ValueError(f"attend: {requests * groups * launch.parts} parts, expected at most {len(space.part)}")
    unit = page_tokens or launch.step
    if page_tokens % launch.step:
        raise ValueError(f"attend: {launch.step} rows at a time, expected a divisor of {page_tokens}")
    whole = listed.shape[1] * (page_tokens or 1)
    share = -(-whole // (launch.parts * unit)) * unit
    early = launch.early and starts_early(q.device)
    attend_rows[(requests * groups * launch.parts,)](
        q, out, rows, listed, counts, space.part, space.weight, scale * LOG2_E, listed.stride(0),
        launch.parts, share,
        HEADS=heads, LANES=lanes, LATENT=latent, ROPE=width - latent, PAGED=page_tokens > 0, TOKENS=page_tokens or 1,
        STEP=launch.step, STAGES=launch.stages, JOINED=launch.parts == 1, TURNED=launch.turned, UPCAST=INTERPRETED,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32", EARLY=early,
        num_warps=launch.warps, launch_pdl=early,
    )  # fmt: skip
    if launch.parts > 1:
        join_rows[(requests * heads,)](
            space.part, space.weight, out, launch.parts, HEADS=heads, LANES=lanes, LATENT=latent, STEP=JOINED_AT_ONCE,
            EARLY=early, num_warps=4, launch_pdl=early,
        )  # fmt: skip
    return out


def row_launch(requests: int, heads: int, most: int, page_tokens: int, processors: int) -> RowLaunch:
    """For requests of up to ``most`` rows; measured on one H200 (docs/benchmarks.md), elsewhere it only costs speed.

    Up to 16 heads enter one product with the rows; more share a load of them, by 64, as far as there are so many.
    """
    wide = heads >= 64
    lanes, programs = (64, 1) if wide else (16, 1 if most <= 4096 else 2)
    parts = max(1, min(programs * processors // (requests * -(-heads // lanes)), -(-most // 64), MAX_PARTS))
    if wide or most > 4096:
        return RowLaunch(parts, lanes, 8 if wide else 4, min(64, page_tokens), 2)
    return RowLaunch(parts, lanes, step=min(32, page_tokens))
