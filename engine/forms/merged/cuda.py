# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Merged pages on an NVIDIA device: the mean is read once and stands for every token."""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels._cuda.page import as_floats


@triton.jit
def tile(at, live, kind: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, KEPT: tl.constexpr):
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    there, across = slots < tl.where(live, TOKENS, 0), columns < tl.where(live, DIM, 0)
    k = tl.load(as_floats(at) + columns, mask=across, other=0.0)
    v = tl.load(as_floats(at) + DIM + columns, mask=across, other=0.0)
    zeros = tl.zeros([TOKENS, DIM], tl.float32)
    return (zeros + k[None, :]).to(kind), (zeros + v[None, :]).to(kind), there
