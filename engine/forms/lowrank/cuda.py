# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Low-rank pages on an NVIDIA device: the query is projected, keys are never rebuilt."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels._cuda.page import as_floats, page_at, soften


@triton.jit
def factors(
    at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, WIDTH: tl.constexpr
):
    """B [WIDTH, DIM] and A [TOKENS, WIDTH] of K, then of V, int8 as `kind`; zeros from RANK on. Then their scales."""
    ranks, columns, slots = tl.arange(0, WIDTH), tl.arange(0, DIM), tl.arange(0, TOKENS)
    there = ranks < tl.where(live, RANK, 0)
    b_at = at + ranks[:, None] * DIM + columns[None, :]
    a_at = at + 2 * RANK * DIM + slots[:, None] * RANK + ranks[None, :]
    b_k = tl.load(b_at, mask=there[:, None], other=0).to(kind)
    b_v = tl.load(b_at + RANK * DIM, mask=there[:, None], other=0).to(kind)
    a_k = tl.load(a_at, mask=there[None, :], other=0).to(kind)
    a_v = tl.load(a_at + TOKENS * RANK, mask=there[None, :], other=0).to(kind)
    scales = as_floats(at + 2 * RANK * (DIM + TOKENS)) + ranks
    s_k = tl.load(scales, mask=there, other=0.0)
    s_v = tl.load(scales + RANK, mask=there, other=0.0)
    return b_k, a_k, b_v, a_v, s_k, s_v


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    WIDTH: tl.constexpr = 16 if RANK <= 16 else (32 if RANK <= 32 else (64 if RANK <= 64 else 128))
    b_k, a_k, b_v, a_v, s_k, s_v = factors(at, live, kind, DIM, TOKENS, RANK, WIDTH)
    precision: tl.constexpr = "ieee" if kind == tl.float32 else "tf32"
    k = tl.dot((a_k.to(tl.float32) * s_k[None, :]).to(kind), b_k, input_precision=precision)
    v = tl.dot((a_v.to(tl.float32) * s_v[None, :]).to(kind), b_v, input_precision=precision)
    return k.to(kind), v.to(kind), tl.arange(0, TOKENS) < tl.where(live, TOKENS, 0)


@triton.jit
def fold(
    mine, top, sums, acc, data, entry, count, part, parts, scale,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = 16 if RANK <= 16 else (32 if RANK <= 32 else (64 if RANK <= 64 else 128))
    before = top
    weights = tl.zeros([ROWS, TOKENS], tl.float32)
    page = tl.load(entry)
    for i in tl.range(0, (count - part + parts - 1) // parts, num_stages=STAGES):
        following = tl.load(entry + (i + 1) * parts)
        at = page_at(data, page, SLAB, PER_SLAB, PAGE)
        b_k, a_k, b_v, a_v, s_k, s_v = factors(at, page >= 0, kind, DIM, TOKENS, RANK, WIDTH)
        inner = tl.dot(mine, tl.trans(b_k), input_precision=PRECISION).to(tl.float32) * s_k[None, :]
        s = tl.dot(inner.to(kind), tl.trans(a_k), input_precision=PRECISION).to(tl.float32)
        top, weights, acc, weight = soften(s, top, weights, acc, scale)
        inner = tl.dot(weight.to(kind), a_v, input_precision=PRECISION).to(tl.float32) * s_v[None, :]
        acc = tl.dot(inner.to(kind), b_v, acc, input_precision=PRECISION)
        page = following
    return top, sums * tl.exp2((before - top) * scale) + tl.sum(weights, 1), acc
