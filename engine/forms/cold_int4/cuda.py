# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Int4 pages on an NVIDIA device: the two halves of a row are two products, so that nothing is put together again."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels._cuda.page import as_floats, page_at, soften


@triton.jit
def halves(x, kind: tl.constexpr):
    """The low and the high four bits of each byte, as float16.

    Four bits under the exponent of 1024 are 1024 more than themselves; two's complement is 8 more with its top bit
    turned. The high four are sixteen times that where they stand.
    """
    if kind == tl.float32:
        return ((x << 4).to(tl.int8) >> 4).to(tl.float32), (x >> 4).to(tl.float32)
    low, high = tl.inline_asm_elementwise(
        """{
        .reg .b32 a;
        .reg .b32 b;
        .reg .b32 c;
        .reg .b32 d;
        .reg .b32 e;
        prmt.b32 a, $4, 0, 0x4140;
        prmt.b32 b, $4, 0, 0x4342;
        mov.b32 c, 0x64086408;
        mov.b32 d, 0x2c002c00;
        mov.b32 e, 0xd480d480;
        lop3.b32 $0, a, 0x000f000f, 0x64086408, 0x6a;
        lop3.b32 $1, b, 0x000f000f, 0x64086408, 0x6a;
        lop3.b32 $2, a, 0x00f000f0, 0x64806480, 0x6a;
        lop3.b32 $3, b, 0x00f000f0, 0x64806480, 0x6a;
        sub.f16x2 $0, $0, c;
        sub.f16x2 $1, $1, c;
        fma.rn.f16x2 $2, $2, d, e;
        fma.rn.f16x2 $3, $3, d, e;
        }""",
        "=&r,=&r,=&r,=&r,r", [x], dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
    )  # fmt: skip
    return low, high


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    HALF: tl.constexpr = DIM // 2
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there = slots < tl.where(live, TOKENS, 0)
    byte = at + slots[:, None] * HALF + (columns % HALF)[None, :]
    shift = tl.where(columns < HALF, 4, 0)[None, :]
    scales = as_floats(at + 2 * TOKENS * HALF) + slots
    k = tl.load(byte, mask=there[:, None], other=0).to(tl.int32)
    v = tl.load(byte + TOKENS * HALF, mask=there[:, None], other=0).to(tl.int32)
    k_scale = tl.load(scales, mask=there, other=0.0)
    v_scale = tl.load(scales + TOKENS, mask=there, other=0.0)
    k = ((k << (24 + shift)) >> 28).to(tl.float32) * k_scale[:, None]
    v = ((v << (24 + shift)) >> 28).to(tl.float32) * v_scale[:, None]
    return k.to(kind), v.to(kind), there


@triton.jit
def fold(
    mine, top, sums, acc, data, entry, count, part, parts, scale,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Two pages a round. Scales go into scores and weights; weights are larger meanwhile, as for int8 pages."""
    wide: tl.constexpr = tl.float32 if kind == tl.float32 else tl.float16
    HALF: tl.constexpr = DIM // 2
    LARGER: tl.constexpr = 256.0
    slots, columns = tl.arange(0, 2 * TOKENS), tl.arange(0, HALF)
    second, slot = slots >= TOKENS, slots % TOKENS
    before = top
    low_q, high_q = tl.split(tl.permute(tl.reshape(mine.to(wide), [ROWS, 2, HALF]), (0, 2, 1)))
    low_acc, high_acc = tl.split(tl.permute(tl.reshape(acc, [ROWS, 2, HALF]), (0, 2, 1)))
    weights = tl.zeros([ROWS, 2 * TOKENS], tl.float32)
    page, other_page = tl.load(entry), tl.load(entry + parts)
    own = (count - part + parts - 1) // parts
    for i in tl.range(0, (own + 1) // 2, num_stages=STAGES):
        ahead = entry + (2 * i + 2) * parts
        following, other_following = tl.load(ahead), tl.load(ahead + parts)
        there = slots < tl.minimum(own - 2 * i, 2) * TOKENS
        base = page_at(data, tl.where(second, other_page, page), SLAB, PER_SLAB, PAGE)
        byte = (base + slot * HALF)[:, None] + columns[None, :]
        k = tl.load(byte, mask=there[:, None], other=0)
        v = tl.load(byte + TOKENS * HALF, mask=there[:, None], other=0)
        scales = as_floats(base + 2 * TOKENS * HALF) + slot
        k_scale = tl.load(scales, mask=there, other=0.0)
        v_scale = tl.load(scales + TOKENS, mask=there, other=0.0)
        low, high = halves(k, kind)
        s = tl.dot(low_q, tl.trans(low), input_precision=PRECISION).to(tl.float32)
        s = tl.dot(high_q, tl.trans(high), s, input_precision=PRECISION) * k_scale[None, :]
        s = tl.where(there[None, :], s, -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        high_acc = high_acc * tl.exp2((top - higher) * scale)[:, None]
        top, weights, low_acc, weight = soften(s, top, weights, low_acc, scale)
        weight = (weight * (v_scale * LARGER)[None, :]).to(wide)
        low, high = halves(v, kind)
        low_acc += tl.dot(weight, low, input_precision=PRECISION) * (1.0 / LARGER)
        high_acc += tl.dot(weight, high, input_precision=PRECISION) * (1.0 / LARGER)
        page, other_page = following, other_following
    acc = tl.reshape(tl.permute(tl.join(low_acc, high_acc), (0, 2, 1)), [ROWS, DIM])
    return top, sums * tl.exp2((before - top) * scale) + tl.sum(weights, 1), acc
