# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Writing: a step's keys and values into their pages, representatives of full blocks, hot pages into int8 ones."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels._cuda.pool import PagedPool

# Adding and taking this away rounds a float32 below 2**22 to the nearest whole number, halves to even.
ROUNDER = 12582912.0


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


@triton.jit
def quantise_pages(
    hot, cold, scales, source, target,
    COLD_UNIT: tl.constexpr, SCALE_UNIT: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """Program (page, 0 for K or 1 for V): one scale per token; V is stored by channels."""
    page, part = tl.program_id(0), tl.program_id(1)
    slots, columns = tl.arange(0, TOKENS), tl.arange(0, DIM)
    base = (tl.load(source + page).to(tl.int64) * 2 + part) * (TOKENS * DIM)
    x = tl.load(hot + base + slots[:, None] * DIM + columns[None, :]).to(tl.float32)
    scale = tl.max(tl.abs(x), 1) / 127.0
    unit = tl.where(scale > 0.0, scale, 1.0)
    whole = ((x / unit[:, None] + ROUND) - ROUND).to(tl.int8)
    to = tl.load(target + page).to(tl.int64)
    tl.store(scales + to * SCALE_UNIT + part * TOKENS + slots, scale)
    rows = cold + to * COLD_UNIT + part * (TOKENS * DIM)
    if part == 0:
        tl.store(rows + slots[:, None] * DIM + columns[None, :], whole)
    else:
        tl.store(rows + columns[None, :] * TOKENS + slots[:, None], whole)


def append(k: torch.Tensor, v: torch.Tensor, pool: PagedPool, table: torch.Tensor, lens: torch.Tensor) -> None:
    """k, v [requests, kv_heads, d] of the newest token, counted in `lens`; a request of length 0 is skipped."""
    shape = pool.geometry
    append_rows[(len(table), shape.kv_heads)](
        k, v, table, lens, pool.place, pool.hot, pool.reps, shape.kv_heads, len(pool.place), table.stride(0),
        k.stride(0), v.stride(0),
        DIM=shape.head_dim, TOKENS=shape.block_tokens, SUBS=shape.subs_per_block, BOUNDS=pool.statistics == "bounds",
    )  # fmt: skip


def quantise(pool: PagedPool, source: torch.Tensor, target: torch.Tensor) -> None:
    """Hot pages `source` into cold pages `target`, int32 [n] each; the caller changes `place`."""
    if len(source):
        quantise_pages[(len(source), 2)](
            pool.hot, pool.cold, pool.scales, source, target,
            COLD_UNIT=pool.cold_unit, SCALE_UNIT=pool.scale_unit, DIM=pool.geometry.head_dim,
            TOKENS=pool.geometry.block_tokens, ROUND=ROUNDER,
        )  # fmt: skip
