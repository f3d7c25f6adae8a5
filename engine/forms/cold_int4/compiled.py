# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Int4 on the CPU: rows are unpacked once, which costs less than shifting for every query head."""

from __future__ import annotations

import numba

from engine.kernels._cpu.rows import NOTHING, add_rows, ask, scale_scores, score_rows, soften


@numba.njit(cache=True, fastmath=True)
def unpack_rows(rows_i8, row, n, out):
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
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    ask(lines, soon)
    dim = q.shape[1]
    row, scales = offset // dim, (offset + tokens * dim) // 4
    unpack_rows(rows_i8, row, n, plain)
    score_rows(q, plain, 0, n, s, lines, NOTHING)
    scale_scores(s, floats, scales, n)
    soften(s, n, peak, total, acc, bits, powers)
    scale_scores(s, floats, scales + tokens, n)
    unpack_rows(rows_i8, row + tokens // 2, n, plain)
    add_rows(s, plain, 0, n, acc, lines, NOTHING)
