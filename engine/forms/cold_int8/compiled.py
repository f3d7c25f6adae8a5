# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Int8 on the CPU: scales go into scores and weights, what is to be read later is asked for between."""

from __future__ import annotations

import numba

from engine.kernels._cpu.rows import add_rows, scale_scores, score_rows, soften, spread


@numba.njit(cache=True, fastmath=True)
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    dim, lead = q.shape[1], spread(soon, tokens)
    row, scales = offset // dim, offset // 4 + tokens * dim // 2
    lead = score_rows(q, rows_i8, row, n, s, lines, lead)
    scale_scores(s, floats, scales, n)
    soften(s, n, peak, total, acc, bits, powers)
    scale_scores(s, floats, scales + tokens, n)
    add_rows(s, rows_i8, row + tokens, n, acc, lines, lead)
