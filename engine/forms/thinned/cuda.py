# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Thinned pages on an NVIDIA device: kept rows stand first, whatever slots they came from."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels._cuda.page import as_floats


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there = slots < tl.where(live, KEPT, 0)
    row = as_floats(at) + slots[:, None] * DIM + columns[None, :]
    k = tl.load(row, mask=there[:, None], other=0.0)
    v = tl.load(row + KEPT * DIM, mask=there[:, None], other=0.0)
    return k.to(kind), v.to(kind), there
