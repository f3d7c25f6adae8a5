# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""A thinned page on the CPU: the tokens that were kept, at full precision."""

from __future__ import annotations

import numba

from engine.kernels._cpu.rows import NOTHING, add_rows, ask, score_rows, soften


@numba.njit(cache=True, fastmath=True)
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    ask(lines, soon)
    row = offset // (4 * q.shape[1])
    score_rows(q, rows_f32, row, kept, s, lines, NOTHING)
    soften(s, kept, peak, total, acc, bits, powers)
    add_rows(s, rows_f32, row + kept, kept, acc, lines, NOTHING)
