"""Compiled reading of one page: fold its tokens into the running soft maximum of its kv head.

All of these readers are one compiled function, since a call through a pointer would cost as much as a page's products:
a form that is to be read here wants a branch in `read_page`. Forms without one are decoded (`engine.kernels.generic`).
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt
import torch

from engine import forms
from engine.kernels._rows import NOTHING, add_rows, ask, scale_scores, score_rows, soften

READERS = ("hot", "cold_int8", "cold_int4", "cold_int2", "cold_fp8", "lowrank", "thinned", "merged")
HOT, INT8, INT4, INT2, FP8, LOWRANK, THINNED, MERGED = range(len(READERS))
UNREAD = -1
E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
"""What each byte of an e4m3 row is worth."""


def reader_of() -> npt.NDArray[np.int64]:
    """By code of a page: which reader it takes, UNREAD where there is none."""
    table = np.full(2 * forms.HOST, UNREAD, dtype=np.int64)
    for name, code in forms.codes().items():
        table[code] = READERS.index(name) if name in READERS else UNREAD
    return table


@numba.njit(cache=True)
def spread(soon, tokens):  # type: ignore[no-untyped-def]
    """Cache lines (first, number) as (first, how many for each four rows of K and then of V)."""
    return soon[0], -(-2 * soon[1] // tokens)


@numba.njit(cache=True, fastmath=True)
def unpack_rows(rows_i8, row, n, out):  # type: ignore[no-untyped-def]
    """Int4 rows, two to a row of `rows_i8` from `row`, to int8 rows out[:n]; see `cold_int4` for the order."""
    half = out.shape[1] // 2
    for t in range(n):
        source = rows_i8[row + t // 2]
        first = (t % 2) * half
        for i in range(half):
            packed = source[first + i]
            out[t, i] = ((packed & 15) ^ 8) - 8
            out[t, half + i] = packed >> 4


@numba.njit(cache=True, fastmath=True)
def read_int4(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, plain, lines):  # type: ignore[no-untyped-def]
    """`plain` int8 [tokens, d] is scratch: unpacking once costs less than shifting for every query head."""
    dim = q.shape[1]
    row, scales = offset // dim, (offset + tokens * dim) // 4
    unpack_rows(rows_i8, row, n, plain)
    score_rows(q, plain, 0, n, s, lines, NOTHING)
    scale_scores(s, floats, scales, n)
    soften(s, n, peak, total, acc, bits, powers)
    scale_scores(s, floats, scales + tokens, n)
    unpack_rows(rows_i8, row + tokens // 2, n, plain)
    add_rows(s, plain, 0, n, acc, lines, NOTHING)


@numba.njit(cache=True, fastmath=True)
def widen_rows(rows_i8, row, n, out):  # type: ignore[no-untyped-def]
    for t in range(n):
        for i in range(out.shape[1]):
            out[t, i] = E4M3[np.uint8(rows_i8[row + t, i])]


@numba.njit(cache=True, fastmath=True)
def read_fp8(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, wide, lines):  # type: ignore[no-untyped-def]
    """`wide` float32 [tokens, d] is scratch: a look-up for each query head would cost as much as its products."""
    dim = q.shape[1]
    row, scales = offset // dim, offset // 4 + tokens * dim // 2
    widen_rows(rows_i8, row, n, wide)
    score_rows(q, wide, 0, n, s, lines, NOTHING)
    scale_scores(s, floats, scales, n)
    soften(s, n, peak, total, acc, bits, powers)
    scale_scores(s, floats, scales + tokens, n)
    widen_rows(rows_i8, row + tokens, n, wide)
    add_rows(s, wide, 0, n, acc, lines, NOTHING)


@numba.njit(cache=True, fastmath=True)
def unpack_levels(rows_i8, row, n, out):  # type: ignore[no-untyped-def]
    """Two-bit levels, four rows to a row of `rows_i8` from `row`, to int8 rows out[:n]; see `cold_int2`."""
    quarter = out.shape[1] // 4
    for t in range(n):
        source = rows_i8[row + t // 4]
        first = (t % 4) * quarter
        for i in range(quarter):
            packed = source[first + i]
            for part in range(4):
                out[t, part * quarter + i] = (packed >> (2 * part)) & 3


@numba.njit(cache=True, fastmath=True)
def read_int2(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, plain, lines):  # type: ignore[no-untyped-def]
    """A key is lowest + step * level in each channel, so steps go to the query; a value is that in each row."""
    group, dim = q.shape
    row, beside = offset // dim, (offset + tokens * dim // 2) // 4
    stepped, least = np.empty((group, dim), np.float32), np.zeros(group, np.float32)
    for g in range(group):
        for i in range(dim):
            stepped[g, i] = q[g, i] * floats[beside + dim + i]
            least[g] += q[g, i] * floats[beside + i]
    unpack_levels(rows_i8, row, n, plain)
    score_rows(stepped, plain, 0, n, s, lines, NOTHING)
    for g in range(group):
        for t in range(n):
            s[g, t] += least[g]
    soften(s, n, peak, total, acc, bits, powers)
    low = beside + 2 * dim
    for g in range(group):
        weight = np.float32(0.0)
        for t in range(n):
            weight += s[g, t] * floats[low + t]
        for i in range(dim):
            acc[g, i] += weight
    scale_scores(s, floats, low + tokens, n)
    unpack_levels(rows_i8, row + tokens // 4, n, plain)
    add_rows(s, plain, 0, n, acc, lines, NOTHING)


@numba.njit(cache=True, fastmath=True)
def read_lowrank(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, inner, lines):  # type: ignore[no-untyped-def]
    """Scores without reconstruction: q to the r components, those to the tokens; `inner` float32 [g, r] is scratch."""
    dim, rank = q.shape[1], inner.shape[1]
    flat = rows_i8.reshape(-1)
    row, factors = offset // dim, offset + 2 * rank * dim
    a_k = flat[factors : factors + tokens * rank].reshape(tokens, rank)
    a_v = flat[factors + tokens * rank : factors + 2 * tokens * rank].reshape(tokens, rank)
    scales = (factors + 2 * tokens * rank) // 4
    score_rows(q, rows_i8, row, rank, inner, lines, NOTHING)
    scale_scores(inner, floats, scales, rank)
    score_rows(inner, a_k, 0, n, s, lines, NOTHING)
    soften(s, n, peak, total, acc, bits, powers)
    inner[:] = np.float32(0.0)
    add_rows(s, a_v, 0, n, inner, lines, NOTHING)
    scale_scores(inner, floats, scales + rank, rank)
    add_rows(inner, rows_i8, row + rank, rank, acc, lines, NOTHING)


@numba.njit(cache=True, fastmath=True)
def read_merged(offset, n, q, peak, total, acc, s, bits, powers, rows_f32, lines):  # type: ignore[no-untyped-def]
    """The mean stands for n tokens: without log n its share of the softmax would be that of one."""
    row = offset // (4 * q.shape[1])
    score_rows(q, rows_f32, row, 1, s, lines, NOTHING)
    for g in range(q.shape[0]):
        s[g, 0] += np.float32(math.log(n))
    soften(s, 1, peak, total, acc, bits, powers)
    add_rows(s, rows_f32, row + 1, 1, acc, lines, NOTHING)


@numba.njit(cache=True, fastmath=True)
def read_thinned(offset, kept, q, peak, total, acc, s, bits, powers, rows_f32, lines):  # type: ignore[no-untyped-def]
    row = offset // (4 * q.shape[1])
    score_rows(q, rows_f32, row, kept, s, lines, NOTHING)
    soften(s, kept, peak, total, acc, bits, powers)
    add_rows(s, rows_f32, row + kept, kept, acc, lines, NOTHING)


@numba.njit(cache=True, fastmath=True)
def read_page(  # type: ignore[no-untyped-def]
    reader, offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    """Fold the first n tokens of a page into the running soft maximum; q [g, d] is scaled already.

    Meanwhile the cache lines `soon` (first, number), of a page to be read later, are asked for.
    """
    dim = q.shape[1]
    if reader == HOT:
        row, lead = offset // (4 * dim), spread(soon, tokens)
        lead = score_rows(q, rows_f32, row, n, s, lines, lead)
        soften(s, n, peak, total, acc, bits, powers)
        add_rows(s, rows_f32, row + tokens, n, acc, lines, lead)
    elif reader == INT8:
        row, scales, lead = offset // dim, offset // 4 + tokens * dim // 2, spread(soon, tokens)
        lead = score_rows(q, rows_i8, row, n, s, lines, lead)
        scale_scores(s, floats, scales, n)
        soften(s, n, peak, total, acc, bits, powers)
        scale_scores(s, floats, scales + tokens, n)
        add_rows(s, rows_i8, row + tokens, n, acc, lines, lead)
    else:
        ask(lines, soon)
        if reader == INT4:
            read_int4(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, plain, lines)
        elif reader == INT2:
            read_int2(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, plain, lines)
        elif reader == FP8:
            read_fp8(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, wide, lines)
        elif reader == THINNED:
            read_thinned(offset, kept, q, peak, total, acc, s, bits, powers, rows_f32, lines)
        elif reader == LOWRANK:
            read_lowrank(offset, n, tokens, q, peak, total, acc, s, bits, powers, rows_i8, floats, inner, lines)
        else:
            read_merged(offset, n, q, peak, total, acc, s, bits, powers, rows_f32, lines)
