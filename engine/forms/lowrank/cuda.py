# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Low-rank pages on an NVIDIA device: the query is projected, keys are never rebuilt."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.forms.cold_int8.cuda import halves, raised
from engine.kernels._cuda.page import as_floats, page_at, soften

LAUNCH = (1, 4, 6)


@triton.jit
def factors(at, live, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, WIDTH: tl.constexpr):
    """int8 B [WIDTH, DIM] and A [TOKENS, WIDTH] of K, those of V turned, zeros from RANK on; then their scales."""
    ranks, columns, slots = tl.arange(0, WIDTH), tl.arange(0, DIM), tl.arange(0, TOKENS)
    there = ranks < tl.where(live, RANK, 0)
    b_k = tl.load(at + ranks[:, None] * DIM + columns[None, :], mask=there[:, None], other=0)
    b_v = tl.load(at + RANK * DIM + columns[:, None] * RANK + ranks[None, :], mask=there[None, :], other=0)
    at += 2 * RANK * DIM
    a_k = tl.load(at + slots[:, None] * RANK + ranks[None, :], mask=there[None, :], other=0)
    a_v = tl.load(at + TOKENS * RANK + ranks[:, None] * TOKENS + slots[None, :], mask=there[:, None], other=0)
    scales = as_floats(at + 2 * RANK * TOKENS) + ranks
    s_k = tl.load(scales, mask=there, other=0.0)
    s_v = tl.load(scales + RANK, mask=there, other=0.0)
    return b_k, a_k, b_v, a_v, s_k, s_v


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    WIDTH: tl.constexpr = 16 if RANK <= 16 else (32 if RANK <= 32 else (64 if RANK <= 64 else 128))
    b_k, a_k, b_v, a_v, s_k, s_v = factors(at, live, DIM, TOKENS, RANK, WIDTH)
    precision: tl.constexpr = "ieee" if kind == tl.float32 else "tf32"
    k = tl.dot((a_k.to(tl.float32) * s_k[None, :]).to(kind), b_k.to(kind), input_precision=precision)
    a_v = tl.trans((a_v.to(tl.float32) * s_v[:, None]).to(kind))
    v = tl.dot(a_v, tl.trans(b_v.to(kind)), input_precision=precision)
    return k.to(kind), v.to(kind), tl.arange(0, TOKENS) < tl.where(live, TOKENS, 0)


@triton.jit
def fold(
    mine, top, sums, acc, data, entry, count, part, parts, scale,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Weights reach the factors of V as they are: a column of A is at most 127 steps of its own scale."""
    WIDTH: tl.constexpr = 16 if RANK <= 16 else (32 if RANK <= 32 else (64 if RANK <= 64 else 128))
    wide: tl.constexpr = tl.float32 if kind == tl.float32 else tl.float16
    before, near = top, mine.to(wide)
    # What is added to every element of B adds this to every component: cheaper than taking it from each element.
    more = (1152.0 * tl.sum(near.to(tl.float32), 1))[:, None]
    weights = tl.zeros([ROWS, TOKENS], tl.float32)
    page = tl.load(entry)
    for i in tl.range(0, (count - part + parts - 1) // parts, num_stages=STAGES):
        following = tl.load(entry + (i + 1) * parts)
        at = page_at(data, page, SLAB, PER_SLAB, PAGE)
        b_k, a_k, b_v, a_v, s_k, s_v = factors(at, page >= 0, DIM, TOKENS, RANK, WIDTH)
        inner = tl.dot(near, tl.trans(raised(b_k, kind)), input_precision=PRECISION).to(tl.float32)
        inner = (inner - more) * s_k[None, :]
        s = tl.dot(inner.to(wide), tl.trans(halves(a_k, kind)), input_precision=PRECISION).to(tl.float32)
        top, weights, acc, weight = soften(s, top, weights, acc, scale)
        inner = tl.dot(weight.to(wide), tl.trans(halves(a_v, kind)), input_precision=PRECISION).to(tl.float32)
        inner = (inner * s_v[None, :]).to(wide)
        acc = tl.dot(inner, tl.trans(halves(b_v, kind)), acc, input_precision=PRECISION)
        page = following
    return top, sums * tl.exp2((before - top) * scale) + tl.sum(weights, 1), acc
