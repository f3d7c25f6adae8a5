# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Eight-bit floats on an NVIDIA device: as int8 pages, widened by the device's own conversion to float16."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.forms.cold_int8.cuda import fold_bytes
from engine.kernels._cuda.page import as_floats


@triton.jit
def halves(x, kind: tl.constexpr):
    wide: tl.constexpr = tl.float32 if kind == tl.float32 else tl.float16
    return x.to(tl.float8e4nv, bitcast=True).to(wide)


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there = slots < tl.where(live, TOKENS, 0)
    k = halves(tl.load(at + slots[:, None] * DIM + columns[None, :], mask=there[:, None], other=0), kind)
    v_at = at + TOKENS * DIM + columns[None, :] * TOKENS + slots[:, None]
    v = halves(tl.load(v_at, mask=there[:, None], other=0), kind)
    scales = as_floats(at + 2 * TOKENS * DIM) + slots
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
    return fold_bytes(
        mine, top, sums, acc, data, entry, count, part, parts, scale, halves,
        SLAB, PER_SLAB, PAGE, DIM, TOKENS, ROWS, STAGES, kind, PRECISION,
    )  # fmt: skip
