# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Full precision on the CPU; what is to be read later is asked for between the products."""

from __future__ import annotations

import numba

from engine.kernels._cpu.rows import add_rows, score_rows, soften, spread


@numba.njit(cache=True, fastmath=True)
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    dim, lead = q.shape[1], spread(soon, tokens)
    row = offset // (4 * dim)
    lead = score_rows(q, rows_f32, row, n, s, lines, lead)
    soften(s, n, peak, total, acc, bits, powers)
    add_rows(s, rows_f32, row + tokens, n, acc, lines, lead)
