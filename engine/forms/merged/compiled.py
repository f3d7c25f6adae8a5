# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""A merged page on the CPU: the mean stands for n tokens, and without log n its share would be that of one."""

from __future__ import annotations

import math

import numba
import numpy as np

from engine.kernels._cpu.rows import NOTHING, add_rows, ask, score_rows, soften


@numba.njit(cache=True, fastmath=True)
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    ask(lines, soon)
    row = offset // (4 * q.shape[1])
    score_rows(q, rows_f32, row, 1, s, lines, NOTHING)
    for g in range(q.shape[0]):
        s[g, 0] += np.float32(math.log(n))
    soften(s, 1, peak, total, acc, bits, powers)
    add_rows(s, rows_f32, row + 1, 1, acc, lines, NOTHING)
