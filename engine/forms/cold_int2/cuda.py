# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Int2 pages on an NVIDIA device."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels._cuda.page import as_floats


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    QUARTER: tl.constexpr = DIM // 4
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there, across = slots < tl.where(live, TOKENS, 0), columns < tl.where(live, DIM, 0)
    byte = at + slots[:, None] * QUARTER + (columns % QUARTER)[None, :]
    shift = (columns // QUARTER * 2)[None, :]
    k = (tl.load(byte, mask=there[:, None], other=0).to(tl.int32) >> shift) & 3
    v = (tl.load(byte + TOKENS * QUARTER, mask=there[:, None], other=0).to(tl.int32) >> shift) & 3
    beside = as_floats(at + 2 * TOKENS * QUARTER)
    k_low = tl.load(beside + columns, mask=across, other=0.0)
    k_step = tl.load(beside + DIM + columns, mask=across, other=0.0)
    v_low = tl.load(beside + 2 * DIM + slots, mask=there, other=0.0)
    v_step = tl.load(beside + 2 * DIM + TOKENS + slots, mask=there, other=0.0)
    k = k.to(tl.float32) * k_step[None, :] + k_low[None, :]
    v = v.to(tl.float32) * v_step[:, None] + v_low[:, None]
    return k.to(kind), v.to(kind), there
