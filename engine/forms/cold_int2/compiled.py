# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Two bits on the CPU: a key is lowest + step * level in each channel, so steps go to the query; values by row."""

from __future__ import annotations

import numba
import numpy as np

from engine.kernels._cpu.rows import NOTHING, add_rows, ask, scale_scores, score_rows, soften


@numba.njit(cache=True, fastmath=True)
def unpack_levels(rows_i8, row, n, out):
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
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    ask(lines, soon)
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
