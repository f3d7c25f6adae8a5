# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Eight-bit floats on the CPU: widened once, since a look-up for each query head would cost as much as its products."""

from __future__ import annotations

import numba
import numpy as np
import torch

from engine.kernels._cpu.rows import NOTHING, add_rows, ask, scale_scores, score_rows, soften

E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
"""What each byte of an e4m3 row is worth."""


@numba.njit(cache=True, fastmath=True)
def widen_rows(rows_i8, row, n, out):
    for t in range(n):
        for i in range(out.shape[1]):
            out[t, i] = E4M3[np.uint8(rows_i8[row + t, i])]


@numba.njit(cache=True, fastmath=True)
def read(
    offset, n, tokens, kept, soon, q, peak, total, acc, s, bits, powers, plain, wide, inner,
    rows_f32, rows_i8, floats, lines,
):  # fmt: skip
    ask(lines, soon)
    dim = q.shape[1]
    row, scales = offset // dim, offset // 4 + tokens * dim // 2
    widen_rows(rows_i8, row, n, wide)
    score_rows(q, wide, 0, n, s, lines, NOTHING)
    scale_scores(s, floats, scales, n)
    soften(s, n, peak, total, acc, bits, powers)
    scale_scores(s, floats, scales + tokens, n)
    widen_rows(rows_i8, row + tokens, n, wide)
    add_rows(s, wide, 0, n, acc, lines, NOTHING)
