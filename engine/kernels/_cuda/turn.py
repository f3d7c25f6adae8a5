# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Rotary position embedding in one launch: plain operators take nine for the same bytes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["stride"])
def turn_rows(x, cosine, sine, out, stride, HEADS: tl.constexpr, LANES: tl.constexpr, HALF: tl.constexpr):
    """Program: one token. x [tokens, HEADS, 2 HALF], tokens `stride` apart; cosine, sine float32 [tokens, HALF]."""
    row = tl.program_id(0)
    head, column = tl.arange(0, LANES)[:, None], tl.arange(0, HALF)[None, :]
    real = (head < HEADS) & (column < HALF)
    at = head * (2 * HALF) + column
    first = tl.load(x + row * stride + at, mask=real, other=0.0).to(tl.float32)
    second = tl.load(x + row * stride + at + HALF, mask=real, other=0.0).to(tl.float32)
    c = tl.load(cosine + row * HALF + tl.arange(0, HALF))[None, :]
    s = tl.load(sine + row * HALF + tl.arange(0, HALF))[None, :]
    to = out + row * (2 * HALF * HEADS) + at
    tl.store(to, (first * c - second * s).to(out.dtype.element_ty), mask=real)
    tl.store(to + HALF, (second * c + first * s).to(out.dtype.element_ty), mask=real)


def turn(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """As `engine.model.rotate`, for x [tokens, heads, d] whose heads follow each other; d a power of two."""
    tokens, heads, dim = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    turn_rows[(tokens,)](
        x, *rotation, out, x.stride(0), HEADS=heads, LANES=triton.next_power_of_2(heads), HALF=dim // 2
    )
    return out
