"""Compiled arithmetic on rows of a page: scores, the running soft maximum, weighted sums.

The whole group of query heads is handled for each row, so that a row is read once.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from engine.kernels._prefetch import prefetch

# Finite, because fast mathematics may assume that no infinity occurs.
LOWEST = np.float32(-1e30)
LOG2E = np.float32(math.log2(math.e))
NOTHING = (0, 0)
"""No cache lines to ask for."""


@numba.njit(cache=True, fastmath=True)
def ask(lines, soon):  # type: ignore[no-untyped-def]
    """Ask for the next of the cache lines `soon` (first, how many at a time); what is left to ask for."""
    for i in range(soon[1]):
        prefetch(lines, soon[0] + i)
    return soon[0] + soon[1], soon[1]


@numba.njit(cache=True, fastmath=True)
def score_rows(q, rows, row, tokens, s, lines, soon):  # type: ignore[no-untyped-def]
    """s[g, t] = q[g] . rows[row + t], rows float32 or int8; four rows at a time keep the adders busy.

    Lines are asked for meanwhile, see `ask`; returns what is left to ask for.
    """
    group, dim = q.shape
    for t in range(0, tokens - 3, 4):
        soon = ask(lines, soon)
        for g in range(group):
            s0 = s1 = s2 = s3 = np.float32(0.0)
            for i in range(dim):
                x = q[g, i]
                s0 += x * np.float32(rows[row + t, i])
                s1 += x * np.float32(rows[row + t + 1, i])
                s2 += x * np.float32(rows[row + t + 2, i])
                s3 += x * np.float32(rows[row + t + 3, i])
            s[g, t], s[g, t + 1], s[g, t + 2], s[g, t + 3] = s0, s1, s2, s3
    for t in range(tokens - tokens % 4, tokens):
        for g in range(group):
            total = np.float32(0.0)
            for i in range(dim):
                total += q[g, i] * np.float32(rows[row + t, i])
            s[g, t] = total
    return soon


@numba.njit(cache=True, fastmath=True)
def add_rows(s, rows, row, tokens, acc, lines, soon):  # type: ignore[no-untyped-def]
    """acc[g] += sum over t of s[g, t] * rows[row + t]; lines are asked for as in `score_rows`."""
    group, dim = acc.shape
    for t in range(0, tokens - 3, 4):
        soon = ask(lines, soon)
        for g in range(group):
            s0, s1, s2, s3 = s[g, t], s[g, t + 1], s[g, t + 2], s[g, t + 3]
            for i in range(dim):
                acc[g, i] += (
                    s0 * np.float32(rows[row + t, i])
                    + s1 * np.float32(rows[row + t + 1, i])
                    + s2 * np.float32(rows[row + t + 2, i])
                    + s3 * np.float32(rows[row + t + 3, i])
                )
    for t in range(tokens - tokens % 4, tokens):
        for g in range(group):
            weight = s[g, t]
            for i in range(dim):
                acc[g, i] += weight * np.float32(rows[row + t, i])


@numba.njit(cache=True, fastmath=True)
def exponentials(s, tokens, top, bits, powers):  # type: ignore[no-untyped-def]
    """s[t] = exp(s[t] - top) for s <= top, and their sum; `powers` is the float32 view of int32 `bits`.

    2**y is an exponent put together from bits times a polynomial in the fraction of y (relative error 1.1e-6), because
    a call into the mathematics library for each token would cost as much as the token's products.
    """
    total = np.float32(0.0)
    for t in range(tokens):
        y = max((s[t] - top) * LOG2E, np.float32(-126.0))
        whole = math.floor(y)
        bits[t] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        s[t] = y - np.float32(whole)
    for t in range(tokens):
        f = s[t]
        p = np.float32(1.8775767e-3) * f + np.float32(8.9893397e-3)
        p = p * f + np.float32(5.5826318e-2)
        p = p * f + np.float32(2.4015361e-1)
        p = p * f + np.float32(6.9315308e-1)
        p = p * f + np.float32(9.9999994e-1)
        s[t] = p * powers[t]
        total += s[t]
    return total


@numba.njit(cache=True, fastmath=True)
def soften(s, tokens, peak, total, acc, bits, powers):  # type: ignore[no-untyped-def]
    """Scores to weights against the running maximum `peak` [g]; `total` [g] and `acc` [g, d] are brought along."""
    group, dim = acc.shape
    for g in range(group):
        top = peak[g]
        for t in range(tokens):
            top = max(top, s[g, t])
        if top > peak[g]:
            shrink = np.float32(math.exp(peak[g] - top))
            peak[g] = top
            total[g] *= shrink
            for i in range(dim):
                acc[g, i] *= shrink
        total[g] += exponentials(s[g], tokens, top, bits, powers)


@numba.njit(cache=True, fastmath=True)
def scale_scores(s, floats, first, tokens):  # type: ignore[no-untyped-def]
    for g in range(s.shape[0]):
        for t in range(tokens):
            s[g, t] *= floats[first + t]


@numba.njit(cache=True, fastmath=True)
def scale_query(q, scale, out):  # type: ignore[no-untyped-def]
    for g in range(q.shape[0]):
        for i in range(q.shape[1]):
            out[g, i] = q[g, i] * scale


@numba.njit(cache=True, fastmath=True)
def merge(peak, total, acc, out):  # type: ignore[no-untyped-def]
    """Bring the lanes' parts [lanes, g(, d)] of one (request, kv head) together; zeros when nothing was read."""
    lanes, group = peak.shape
    for g in range(group):
        top = LOWEST
        for lane in range(lanes):
            top = max(top, peak[lane, g])
        out[g, :] = np.float32(0.0)
        whole = np.float32(0.0)
        for lane in range(lanes):
            if total[lane, g] > 0:
                weight = np.float32(math.exp(peak[lane, g] - top))
                whole += weight * total[lane, g]
                for i in range(out.shape[1]):
                    out[g, i] += weight * acc[lane, g, i]
        if whole > 0:
            for i in range(out.shape[1]):
                out[g, i] /= whole
