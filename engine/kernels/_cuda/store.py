# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Writing: a step's keys and values into their pages, and representatives of full blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels._cuda.pool import PagedPool


@triton.jit
def append_rows(
    k, v, table, lens, place, hot, reps, heads, pool_blocks, table_stride, k_stride, v_stride,
    DIM: tl.constexpr, TOKENS: tl.constexpr, SUBS: tl.constexpr, BOUNDS: tl.constexpr,
):  # fmt: skip
    """Program (request, head): row lens - 1 of its context, into a hot page; k, v [requests, heads, DIM] by strides."""
    request, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(lens + request) - 1
    if slot < 0:
        return
    block = tl.load(table + request * table_stride + slot // TOKENS)
    base = hot + tl.load(place + head * pool_blocks + block).to(tl.int64) * (2 * TOKENS * DIM)
    columns = tl.arange(0, DIM)
    key = tl.load(k + request * k_stride + head * DIM + columns)
    tl.store(base + slot % TOKENS * DIM + columns, key)
    value = tl.load(v + request * v_stride + head * DIM + columns)
    tl.store(base + (TOKENS + slot % TOKENS) * DIM + columns, value)
    if slot % TOKENS == TOKENS - 1:
        LENGTH: tl.constexpr = TOKENS // SUBS
        tokens = tl.arange(0, LENGTH)
        for sub in range(SUBS):
            row = sub * LENGTH + tokens
            old = tl.load(base + row[:, None] * DIM + columns[None, :], mask=(row < TOKENS - 1)[:, None], other=0.0)
            keys = tl.where((row < TOKENS - 1)[:, None], old, key[None, :]).to(tl.float32)
            at = reps + ((head.to(tl.int64) * pool_blocks + block) * SUBS + sub) * DIM * (2 if BOUNDS else 1) + columns
            if BOUNDS:
                tl.store(at, tl.min(keys, 0).to(reps.dtype.element_ty))
                tl.store(at + DIM, tl.max(keys, 0).to(reps.dtype.element_ty))
            else:
                tl.store(at, (tl.sum(keys, 0) / LENGTH).to(reps.dtype.element_ty))


def append(k: torch.Tensor, v: torch.Tensor, pool: PagedPool, table: torch.Tensor, lens: torch.Tensor) -> None:
    """k, v [requests, kv_heads, d] of the newest token, counted in `lens`; a request of length 0 is skipped."""
    shape = pool.geometry
    append_rows[(len(table), shape.kv_heads)](
        k, v, table, lens, pool.place, pool.hot, pool.reps, shape.kv_heads, len(pool.place), table.stride(0),
        k.stride(0), v.stride(0),
        DIM=shape.head_dim, TOKENS=shape.block_tokens, SUBS=shape.subs_per_block, BOUNDS=pool.statistics == "bounds",
    )  # fmt: skip
