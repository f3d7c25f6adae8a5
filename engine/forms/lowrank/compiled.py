# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Low rank on the CPU, without rebuilding keys: q to the r components, those to the tokens."""

from __future__ import annotations

import numba
import numpy as np

from engine.kernels._cpu.rows import NOTHING, add_rows, ask, scale_scores, score_rows, soften


@numba.njit(cache=True, fastmath=True)
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    ask(lines, soon)
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
