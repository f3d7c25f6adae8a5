# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Int8 pages on an NVIDIA device: V by channels, scales into scores and weights, bytes into products as they are."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.geometry import KVGeometry
from engine.kernels._cuda.page import as_floats, page_at, soften

# Adding and taking this away rounds a float32 below 2**22 to the nearest whole number, halves to even.
ROUNDER = 12582912.0


@triton.jit
def raised(x, kind: tl.constexpr):
    """Int8 + 1152 as float16, four at a time: a byte under the exponent of 1024 is 1024 more than itself."""
    if kind == tl.float32:
        return x.to(tl.float32) + 1152.0
    else:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 u;
            xor.b32 u, $2, 0x80808080;
            prmt.b32 $0, u, 0x64646464, 0x4140;
            prmt.b32 $1, u, 0x64646464, 0x4342;
            }""",
            "=r,=r,r", [x], dtype=tl.float16, is_pure=True, pack=4,
        )  # fmt: skip


@triton.jit
def halves(x, kind: tl.constexpr):
    """Int8 as float16."""
    return raised(x, kind) - 1152.0


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there = slots < tl.where(live, TOKENS, 0)
    k = tl.load(at + slots[:, None] * DIM + columns[None, :], mask=there[:, None], other=0).to(tl.float32)
    v_at = at + TOKENS * DIM + columns[None, :] * TOKENS + slots[:, None]
    v = tl.load(v_at, mask=there[:, None], other=0).to(tl.float32)
    scales = as_floats(at + 2 * TOKENS * DIM) + slots
    k_scale = tl.load(scales, mask=there, other=0.0)
    v_scale = tl.load(scales + TOKENS, mask=there, other=0.0)
    return (k * k_scale[:, None]).to(kind), (v * v_scale[:, None]).to(kind), there


@triton.jit
def fold_bytes(
    mine, top, sums, acc, data, entry, count, part, parts, scale, WIDEN: tl.constexpr,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Two pages a round, as many bytes as one hot page: the round's fixed cost is then the same.

    Scales are per token: K's multiply scores, V's multiply weights, so that bytes go into the product as they are,
    made float16 by WIDEN. Weights are made larger meanwhile, so that small ones keep their digits in float16.
    """
    wide: tl.constexpr = tl.float32 if kind == tl.float32 else tl.float16
    LARGER: tl.constexpr = 256.0
    slots, columns = tl.arange(0, 2 * TOKENS), tl.arange(0, DIM)
    second, slot = slots >= TOKENS, slots % TOKENS
    before, near = top, mine.to(wide)
    weights = tl.zeros([ROWS, 2 * TOKENS], tl.float32)
    page, other_page = tl.load(entry), tl.load(entry + parts)
    own = (count - part + parts - 1) // parts
    for i in tl.range(0, (own + 1) // 2, num_stages=STAGES):
        ahead = entry + (2 * i + 2) * parts
        following, other_following = tl.load(ahead), tl.load(ahead + parts)
        there = slots < tl.minimum(own - 2 * i, 2) * TOKENS
        base = page_at(data, tl.where(second, other_page, page), SLAB, PER_SLAB, PAGE)
        k = tl.load((base + slot * DIM)[:, None] + columns[None, :], mask=there[:, None], other=0)
        v_at = (base + TOKENS * DIM + slot)[None, :] + columns[:, None] * TOKENS
        v = tl.load(v_at, mask=there[None, :], other=0)
        scales = as_floats(base + 2 * TOKENS * DIM) + slot
        k_scale = tl.load(scales, mask=there, other=0.0)
        v_scale = tl.load(scales + TOKENS, mask=there, other=0.0)
        s = tl.dot(near, tl.trans(WIDEN(k, kind)), input_precision=PRECISION).to(tl.float32) * k_scale[None, :]
        s = tl.where(there[None, :], s, -float("inf"))
        top, weights, acc, weight = soften(s, top, weights, acc, scale)
        weight = (weight * (v_scale * LARGER)[None, :]).to(wide)
        acc += tl.dot(weight, tl.trans(WIDEN(v, kind)), input_precision=PRECISION) * (1.0 / LARGER)
        page, other_page = following, other_following
    return top, sums * tl.exp2((before - top) * scale) + tl.sum(weights, 1), acc


@triton.jit
def fold(
    mine, top, sums, acc, data, entry, count, part, parts, scale,
    SLAB: tl.constexpr, PER_SLAB: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr, STAGES: tl.constexpr, kind: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    return fold_bytes(
        mine, top, sums, acc, data, entry, count, part, parts, scale, halves,
        SLAB, PER_SLAB, PAGE, DIM, TOKENS, ROWS, STAGES, kind, PRECISION,
    )  # fmt: skip


@triton.jit
def quantise_pages(hot, cold, source, PAGE: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, ROUND: tl.constexpr):
    """Program (page, 0 for K or 1 for V): one scale per token; V is stored by channels."""
    page, part = tl.program_id(0), tl.program_id(1)
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    base = (tl.load(source + page).to(tl.int64) * 2 + part) * (TOKENS * DIM)
    x = tl.load(hot + base + slots[:, None] * DIM + columns[None, :]).to(tl.float32)
    scale = tl.max(tl.abs(x), 1) / 127.0
    unit = tl.where(scale > 0.0, scale, 1.0)
    whole = ((x / unit[:, None] + ROUND) - ROUND).to(tl.int8)
    to = cold + page.to(tl.int64) * PAGE
    tl.store(as_floats(to + 2 * TOKENS * DIM) + part * TOKENS + slots, scale)
    rows = to + part * (TOKENS * DIM)
    if part == 0:
        tl.store(rows + slots[:, None] * DIM + columns[None, :], whole)
    else:
        tl.store(rows + columns[None, :] * TOKENS + slots[:, None], whole)


def freeze(geometry: KVGeometry, hot: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Pages int64 [n] of hot [pages, 2, tokens, d] as this form's bytes, uint8 [n, page_bytes]."""
    size = geometry.cold_page_bytes
    out = torch.zeros(len(source), size, dtype=torch.uint8, device=hot.device)
    if len(source):
        quantise_pages[(len(source), 2)](
            hot, out.view(torch.int8), source.int(), PAGE=size, DIM=geometry.head_dim, TOKENS=geometry.block_tokens,
            ROUND=ROUNDER,
        )  # fmt: skip
    return out
