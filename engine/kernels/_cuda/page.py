# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""What readers of a form's pages on a device share: where a page lies, and how its tokens join a running softmax.

A form's `cuda.py` holds `tile(at, live, kind, DIM, TOKENS, RANK, KEPT)`, which gives k, v [TOKENS, DIM] of type `kind`
and which tokens are there, bool [TOKENS], of the page at int8 pointer `at`; nothing may be read where `live` is false.
It may hold `fold`, with the parameters of `read_tiles` less TILE: the same result by less work.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def page_at(data, page, SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr):
    """Pages of a form fill whole slabs; a slab's last bytes may belong to no page."""
    if PER_SLAB == 1:
        return data + page.to(tl.int64) * SLAB
    return data + (page // PER_SLAB).to(tl.int64) * SLAB + (page % PER_SLAB) * PAGE


@triton.jit
def soften(s, top, weights, acc, scale):
    """Weights of scores s [ROWS, n] against the new peak, and what was gathered so far shrunk to it."""
    higher = tl.maximum(top, tl.max(s, 1))
    shrink = tl.exp2((top - higher) * scale)
    weight = tl.exp2(s * scale - (higher * scale)[:, None])
    return higher, weights * shrink[:, None] + weight, acc * shrink[:, None], weight


@triton.jit
def read_tiles(
    mine, top, sums, acc, data, entry, count, part, parts, scale, TILE: tl.constexpr,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Fold a part's pages of one form into the softmax: mine [ROWS, DIM], top, sums [ROWS], acc [ROWS, DIM]."""
    before = top
    weights = tl.zeros([ROWS, TOKENS], tl.float32)
    page = tl.load(entry)
    for i in tl.range(0, (count - part + parts - 1) // parts, num_stages=STAGES):
        following = tl.load(entry + (i + 1) * parts)
        at = page_at(data, page, SLAB, PER_SLAB, PAGE)
        k, v, there = TILE(at, page >= 0, kind, DIM, TOKENS, RANK, KEPT)
        s = tl.dot(mine, tl.trans(k), input_precision=PRECISION).to(tl.float32)
        s = tl.where(there[None, :], s, -float("inf"))
        top, weights, acc, weight = soften(s, top, weights, acc, scale)
        acc = tl.dot(weight.to(kind), v, acc, input_precision=PRECISION)
        page = following
    return top, sums * tl.exp2((before - top) * scale) + tl.sum(weights, 1), acc


@triton.jit
def as_floats(at):
    return at.to(tl.pointer_type(tl.float32), bitcast=True)
