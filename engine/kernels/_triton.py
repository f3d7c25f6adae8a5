# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Triton kernels for paged block-sparse decode: parts of the context in parallel, then a merge by log-sum-exp.

Plain pointers and `while` loops only: block pointers left Triton in 3.9, and ranges with loaded bounds fail in the
interpreter of 3.6. No address is read that is masked, so an absent page costs nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_page(
    hot, cold, scales, where, held, filled, kind: tl.constexpr,
    DIM: tl.constexpr, TOKENS: tl.constexpr, HOT_BYTES: tl.constexpr,
):  # fmt: skip
    """k, v [TOKENS, DIM] of the page at byte `where`, their scales [TOKENS] (1 if hot), and which slots are there."""
    slots = tl.arange(0, TOKENS)
    tile = slots[:, None] * DIM + tl.arange(0, DIM)[None, :]
    is_hot = slots < tl.where(held == 1, filled, 0)
    is_cold = slots < tl.where(held == 2, filled, 0)
    at_hot, at_cold = hot + where // HOT_BYTES + tile, cold + where + tile
    k = tl.load(at_hot, mask=is_hot[:, None], other=0.0).to(kind)
    v = tl.load(at_hot + TOKENS * DIM, mask=is_hot[:, None], other=0.0).to(kind)
    k += tl.load(at_cold, mask=is_cold[:, None], other=0).to(kind)
    v += tl.load(at_cold + TOKENS * DIM, mask=is_cold[:, None], other=0).to(kind)
    at_scale = scales + where // 4 + TOKENS * DIM // 2 + slots
    k_scale = tl.load(at_scale, mask=is_cold, other=1.0)
    v_scale = tl.load(at_scale + TOKENS, mask=is_cold, other=1.0)
    return k, v, k_scale, v_scale, is_hot | is_cold


@triton.jit
def attend_part(
    q, table, lens, index, count, offset, form, hot, cold, scales, part, peak, total,
    scale, heads, table_stride, index_stride,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, HOT_BYTES: tl.constexpr,
    SPLITS: tl.constexpr, EVERYTHING: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (pair, split): q [B * heads, GROUP, DIM] against its share of the pages of one (request, kv head).

    `hot`, `cold`, `scales` are the arena as elements of HOT_BYTES bytes, int8 and float32; `offset`, `form` are one
    layer's tables [max_blocks, heads]. Writes float32 part [B * heads, SPLITS, ROWS, DIM], peak and total without DIM.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    request, head = pair // heads, pair % heads
    context = tl.load(lens + request)
    pages = tl.cdiv(context, TOKENS) if EVERYTHING else tl.load(count + pair)
    share = tl.cdiv(pages, SPLITS)
    j = split * share
    end = tl.minimum(pages, j + share)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, DIM)
    mine = tl.load(q + (pair * GROUP + rows[:, None]) * DIM + columns[None, :], mask=rows[:, None] < GROUP, other=0.0)
    kind = tl.float32 if UPCAST else mine.dtype
    mine = (mine.to(tl.float32) * (scale * 1.4426950408889634)).to(kind)
    top = tl.full([ROWS], -float("inf"), tl.float32)
    sums = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    while j < end:
        place = j if EVERYTHING else tl.load(index + pair * index_stride + j)
        block = tl.load(table + request * table_stride + place).to(tl.int64)
        where = tl.load(offset + block * heads + head)
        held = tl.load(form + block * heads + head)
        k, v, k_scale, v_scale, there = load_page(
            hot, cold, scales, where, held, context - place * TOKENS, kind, DIM, TOKENS, HOT_BYTES
        )
        s = tl.dot(mine, tl.trans(k), input_precision=PRECISION).to(tl.float32) * k_scale[None, :]
        s = tl.where(there[None, :], s, -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        weight = tl.exp2(s - base[:, None])
        shrink = tl.exp2(top - base)
        sums = sums * shrink + tl.sum(weight, 1)
        weighted = tl.dot((weight * v_scale[None, :]).to(kind), v, input_precision=PRECISION).to(tl.float32)
        acc = acc * shrink[:, None] + weighted
        top = higher
        j += 1
    at = (pair * SPLITS + split) * ROWS + rows
    tl.store(peak + at, top)
    tl.store(total + at, sums)
    tl.store(part + at[:, None] * DIM + columns[None, :], acc)


@triton.jit
def merge_parts(
    part, peak, total, out,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Program (pair): out [B * heads, GROUP, DIM]; zeros where no page was read."""
    pair = tl.program_id(0)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, DIM)
    top = tl.full([ROWS], -float("inf"), tl.float32)
    sums = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    split = 0
    while split < SPLITS:
        at = (pair * SPLITS + split) * ROWS + rows
        its = tl.load(peak + at)
        higher = tl.maximum(top, its)
        base = tl.where(higher == -float("inf"), 0.0, higher)
        old, new = tl.exp2(top - base), tl.exp2(its - base)
        sums = sums * old + tl.load(total + at) * new
        acc = acc * old[:, None] + tl.load(part + at[:, None] * DIM + columns[None, :]) * new[:, None]
        top = higher
        split += 1
    acc = acc / tl.where(sums == 0.0, 1.0, sums)[:, None]
    at = out + (pair * GROUP + rows[:, None]) * DIM + columns[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=rows[:, None] < GROUP)
