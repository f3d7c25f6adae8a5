# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Thinned pages on an NVIDIA device: kept rows stand first, whatever slots they came from."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels._cuda.page import as_floats, page_at, soften

LAUNCH = (1, 3, 8)


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there = slots < tl.where(live, KEPT, 0)
    row = as_floats(at) + slots[:, None] * DIM + columns[None, :]
    k = tl.load(row, mask=there[:, None], other=0.0)
    v = tl.load(row + KEPT * DIM, mask=there[:, None], other=0.0)
    return k.to(kind), v.to(kind), there


@triton.jit
def fold(
    mine, top, sums, acc, data, entry, count, part, parts, scale,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The rows that are there, and no others."""
    WIDTH: tl.constexpr = 16 if KEPT <= 16 else (32 if KEPT <= 32 else TOKENS)
    slots, columns = tl.arange(0, WIDTH), tl.arange(0, DIM)
    there = slots < KEPT
    before = top
    weights = tl.zeros([ROWS, WIDTH], tl.float32)
    page = tl.load(entry)
    for i in tl.range(0, (count - part + parts - 1) // parts, num_stages=STAGES):
        following = tl.load(entry + (i + 1) * parts)
        row = as_floats(page_at(data, page, SLAB, PER_SLAB, PAGE)) + slots[:, None] * DIM + columns[None, :]
        k = tl.load(row, mask=there[:, None], other=0.0).to(kind)
        v = tl.load(row + KEPT * DIM, mask=there[:, None], other=0.0).to(kind)
        s = tl.dot(mine, tl.trans(k), input_precision=PRECISION).to(tl.float32)
        s = tl.where(there[None, :], s, -float("inf"))
        top, weights, acc, weight = soften(s, top, weights, acc, scale)
        acc = tl.dot(weight.to(kind), v, acc, input_precision=PRECISION)
        page = following
    return top, sums * tl.exp2((before - top) * scale) + tl.sum(weights, 1), acc
