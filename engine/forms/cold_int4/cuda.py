# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Int4 pages on an NVIDIA device: the halves of a byte go into products of their own, and are never put together.

Four bits under the exponent of 1024 are a float16 that is 1024 more than themselves, at the price of one operation for
two of them; two's complement with its top bit turned is 8 more. The high four are sixteen times that where they stand.
Keys stay so, since what is added to every key adds the same to every score of a query; values are brought back, since
their sum over a long context would lose its digits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels._cuda.page import as_floats, page_at

LAUNCH = (2, 3, 4)


@triton.jit
def raised(x, kind: tl.constexpr):
    """Of each byte the low four bits + 1032, and sixteen times the high four + 1152, as float16."""
    if kind == tl.float32:
        return ((x << 4).to(tl.int8) >> 4).to(tl.float32) + 1032.0, (x >> 4).to(tl.float32) * 16.0 + 1152.0
    else:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 a;
            .reg .b32 b;
            prmt.b32 a, $4, 0, 0x4140;
            prmt.b32 b, $4, 0, 0x4342;
            lop3.b32 $0, a, 0x000f000f, 0x64086408, 0x6a;
            lop3.b32 $1, b, 0x000f000f, 0x64086408, 0x6a;
            lop3.b32 $2, a, 0x00f000f0, 0x64806480, 0x6a;
            lop3.b32 $3, b, 0x00f000f0, 0x64806480, 0x6a;
            }""",
            "=r,=r,=r,=r,r", [x], dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
        )  # fmt: skip


@triton.jit
def exact(x, kind: tl.constexpr):
    """Of each byte the low four bits, and sixteen times the high four."""
    low, high = raised(x, kind)
    return low - 1032.0, high - 1152.0


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there = slots < tl.where(live, TOKENS, 0)
    byte = at + slots[:, None] * (DIM // 2) + (columns % (DIM // 2))[None, :]
    k = tl.load(byte, mask=there[:, None], other=0).to(tl.int32)
    k = (k << tl.where(columns < DIM // 2, 28, 24)[None, :]) >> 28
    byte = at + TOKENS * (DIM // 2) + columns[None, :] * (TOKENS // 2) + (slots % (TOKENS // 2))[:, None]
    v = tl.load(byte, mask=there[:, None], other=0).to(tl.int32)
    v = (v << tl.where(slots < TOKENS // 2, 28, 24)[:, None]) >> 28
    scales = as_floats(at + TOKENS * DIM) + slots
    k_scale = tl.load(scales, mask=there, other=0.0)
    v_scale = tl.load(scales + TOKENS, mask=there, other=0.0)
    return (k.to(tl.float32) * k_scale[:, None]).to(kind), (v.to(tl.float32) * v_scale[:, None]).to(kind), there


@triton.jit
def fold(
    mine, top, sums, acc, data, entry, count, part, parts, scale,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Two pages a round, the first halves of their tokens beside the second halves, as a byte of V holds them.

    Weights are larger meanwhile, as for int8 pages; those of second halves sixteen times less so, as are the queries
    that meet sixteen times what they should.
    """
    wide: tl.constexpr = tl.float32 if kind == tl.float32 else tl.float16
    HALF: tl.constexpr = DIM // 2
    LARGER: tl.constexpr = 1024.0
    both, columns, channels = tl.arange(0, TOKENS), tl.arange(0, HALF), tl.arange(0, DIM)
    second, slot = both >= TOKENS // 2, both % (TOKENS // 2)
    before = top
    low_q, high_q = tl.split(tl.permute(tl.reshape(mine.to(tl.float32), [ROWS, 2, HALF]), (0, 2, 1)))
    low_q, high_q = low_q.to(wide), (high_q * 0.0625).to(wide)
    more = 1032.0 * tl.sum(low_q.to(tl.float32), 1) + 1152.0 * tl.sum(high_q.to(tl.float32), 1)
    weights = tl.zeros([ROWS, TOKENS], tl.float32)
    page, other_page = tl.load(entry), tl.load(entry + parts)
    own = (count - part + parts - 1) // parts
    for i in tl.range(0, (own + 1) // 2, num_stages=STAGES):
        ahead = entry + (2 * i + 2) * parts
        following, other_following = tl.load(ahead), tl.load(ahead + parts)
        there = both < tl.minimum(own - 2 * i, 2) * (TOKENS // 2)
        base = page_at(data, tl.where(second, other_page, page), SLAB, PER_SLAB, PAGE)
        byte = (base + slot * HALF)[:, None] + columns[None, :]
        k = tl.load(byte, mask=there[:, None], other=0)
        later_k = tl.load(byte + (TOKENS // 2) * HALF, mask=there[:, None], other=0)
        v_at = (base + TOKENS * HALF + slot)[None, :] + channels[:, None] * (TOKENS // 2)
        v = tl.load(v_at, mask=there[None, :], other=0)
        scales = as_floats(base + TOKENS * DIM) + slot
        k_scale = tl.load(scales, mask=there, other=0.0)
        later_k_scale = tl.load(scales + TOKENS // 2, mask=there, other=0.0)
        v_scale = tl.load(scales + TOKENS, mask=there, other=0.0)
        later_v_scale = tl.load(scales + TOKENS + TOKENS // 2, mask=there, other=0.0)
        low, high = raised(k, kind)
        s = tl.dot(low_q, tl.trans(low), input_precision=PRECISION).to(tl.float32)
        s = tl.dot(high_q, tl.trans(high), s, input_precision=PRECISION)
        s = tl.where(there[None, :], (s - more[:, None]) * k_scale[None, :], -float("inf"))
        low, high = raised(later_k, kind)
        later = tl.dot(low_q, tl.trans(low), input_precision=PRECISION).to(tl.float32)
        later = tl.dot(high_q, tl.trans(high), later, input_precision=PRECISION)
        later = tl.where(there[None, :], (later - more[:, None]) * later_k_scale[None, :], -float("inf"))
        peak = tl.maximum(top, tl.max(tl.maximum(s, later), 1))
        shrink = tl.exp2((top - peak) * scale)[:, None]
        weight = tl.exp2(s * scale - (peak * scale)[:, None])
        later = tl.exp2(later * scale - (peak * scale)[:, None])
        top, weights, acc = peak, weights * shrink + weight + later, acc * shrink
        low, high = exact(v, kind)
        weight = (weight * (v_scale * LARGER)[None, :]).to(wide)
        later = (later * (later_v_scale * (LARGER / 16.0))[None, :]).to(wide)
        part_of = tl.dot(weight, tl.trans(low), input_precision=PRECISION)
        part_of = tl.dot(later, tl.trans(high), part_of, input_precision=PRECISION)
        acc += part_of.to(tl.float32) * (1.0 / LARGER)
        page, other_page = following, other_following
    return top, sums * tl.exp2((before - top) * scale) + tl.sum(weights, 1), acc
