"""Compiled attention over pages, straight through the page table: what `dense` and `block` run.

The whole group of query heads is handled for each row, so that a row is read once; the float32 soft maximum is carried
from page to page. Work is cut by pages, not by requests, so that every thread is busy whatever the lengths.
"""

from __future__ import annotations

import math
from time import perf_counter

import numba
import numpy as np
import torch

from engine.cache import KVCache
from engine.forms.cold_int8 import CODE as COLD
from engine.forms.hot import CODE as HOT
from engine.kernels._base import DecodeBatch, Phases, Selection, Traffic
from engine.kernels._prefetch import prefetch

# Threads of this layer sleep between calls. A spinning layer would take the cores from torch's own threads.
numba.config.THREADING_LAYER = "workqueue"

# Finite, because fast mathematics may assume that no infinity occurs.
LOWEST = np.float32(-1e30)
# Pages between asking for a page and reading it.
AHEAD = 2
# Only the loops written as parallel ones are: each region costs a wake-up of every thread.
PRANGE_ONLY = {"prange": True} | dict.fromkeys(
    ("comprehension", "inplace_binop", "numpy", "reduction", "setitem", "stencil"), False
)
LOG2E = np.float32(math.log2(math.e))


@numba.njit(cache=True, fastmath=True)
def score_rows(q, rows, row, tokens, s):  # type: ignore[no-untyped-def]
    """s[g, t] = q[g] . rows[row + t], rows float32 or int8; four rows at a time keep the adders busy."""
    group, dim = q.shape
    for t in range(0, tokens - 3, 4):
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


@numba.njit(cache=True, fastmath=True)
def add_rows(s, rows, row, tokens, acc):  # type: ignore[no-untyped-def]
    """acc[g] += sum over t of s[g, t] * rows[row + t]."""
    group, dim = acc.shape
    for t in range(0, tokens - 3, 4):
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


@numba.njit(cache=True)
def lead_in(form, offset, tokens, dim):  # type: ignore[no-untyped-def]
    """First row and number of rows, in rows of `rows_i8`, worth asking for before a page is read.

    All of a cold page; of a hot one only the start, since the hardware follows the rest of so long a stream by itself.
    """
    if form == COLD:
        return offset // dim, 2 * tokens + 8 * tokens // dim
    return offset // dim, tokens if form == HOT else 0


@numba.njit(cache=True, fastmath=True)
def read_page(  # type: ignore[no-untyped-def]
    form, offset, n, tokens, soon, q, peak, total, acc, s, bits, powers, rows_f32, rows_i8, floats
):  # fmt: skip
    """Fold the first n tokens of a page into the running soft maximum; q [g, d] is scaled already.

    Meanwhile the rows `soon` (first, number), of a page to be read later, are asked for.
    """
    dim, half = q.shape[1], soon[1] // 2
    for i in range(half):
        prefetch(rows_i8, soon[0] + i)
    if form == HOT:
        row = offset // (4 * dim)
        score_rows(q, rows_f32, row, n, s)
        soften(s, n, peak, total, acc, bits, powers)
        for i in range(half, soon[1]):
            prefetch(rows_i8, soon[0] + i)
        add_rows(s, rows_f32, row + tokens, n, acc)
    else:
        row, scales = offset // dim, offset // 4 + tokens * dim // 2
        score_rows(q, rows_i8, row, n, s)
        scale_scores(s, floats, scales, n)
        soften(s, n, peak, total, acc, bits, powers)
        scale_scores(s, floats, scales + tokens, n)
        for i in range(half, soon[1]):
            prefetch(rows_i8, soon[0] + i)
        add_rows(s, rows_i8, row + tokens, n, acc)


@numba.njit(cache=True)
def starts(pairs, heads, lens, tokens, count, everything):  # type: ignore[no-untyped-def]
    """Pages to read before each (request, kv head), int64 [pairs + 1]."""
    start = np.zeros(pairs + 1, np.int64)
    for pair in range(pairs):
        b, h = pair // heads, pair % heads
        start[pair + 1] = start[pair] + ((lens[b] + tokens - 1) // tokens if everything else count[b, h])
    return start


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


@numba.njit(cache=True, fastmath=True, parallel=dict(PRANGE_ONLY), nogil=True)
def attend_pages(  # type: ignore[no-untyped-def]
    q, scale, lens, table, index, count, everything, layer, tokens, lanes,
    rows_f32, rows_i8, floats, page_offset, page_form, out, read,
):  # fmt: skip
    """q, out [B, H, G, D]; index, count as in Selection, unless `everything`; read int64 [lanes, 3] is written."""
    requests, heads, group, dim = q.shape
    start = starts(requests * heads, heads, lens, tokens, count, everything)
    peak = np.full((requests * heads, lanes, group), LOWEST, np.float32)
    total = np.zeros((requests * heads, lanes, group), np.float32)
    acc = np.zeros((requests * heads, lanes, group, dim), np.float32)
    for lane in numba.prange(lanes):
        first, last = start[-1] * lane // lanes, start[-1] * (lane + 1) // lanes
        s = np.empty((group, tokens), np.float32)
        mine = np.empty((group, dim), np.float32)
        bits = np.empty(tokens, np.int32)
        powers = bits.view(np.float32)
        hot = cold = entries = 0
        for pair in range(requests * heads):
            low, high = max(first, start[pair]) - start[pair], min(last, start[pair + 1]) - start[pair]
            b, h = pair // heads, pair % heads
            if low < high:
                scale_query(q[b, h], scale, mine)
            top, sums, sofar = peak[pair, lane], total[pair, lane], acc[pair, lane]
            for j in range(low, high):
                place = j if everything else index[b, h, j]
                block, n = table[b, place], min(tokens, lens[b] - place * tokens)
                form = page_form[layer, block, h]
                soon = min(j + AHEAD, high - 1)
                later = table[b, soon if everything else index[b, h, soon]]
                lead = lead_in(page_form[layer, later, h], page_offset[layer, later, h], tokens, dim)
                if form in (HOT, COLD):
                    read_page(
                        form, page_offset[layer, block, h], n, tokens, lead, mine, top, sums, sofar, s, bits, powers,
                        rows_f32, rows_i8, floats,
                    )  # fmt: skip
                    hot += form == HOT
                    cold += form == COLD
                    entries += n
        read[lane, 0], read[lane, 1], read[lane, 2] = hot, cold, entries
    for pair in range(requests * heads):
        merge(peak[pair], total[pair], acc[pair], out[pair // heads, pair % heads])


def plain(tensor: torch.Tensor, dtype: torch.dtype) -> np.ndarray:
    """The array a compiled kernel expects; another type or layout would have it compiled once more."""
    array: np.ndarray = tensor.to(dtype).contiguous().numpy()
    return array


NO_INDEX, NO_COUNT = np.zeros((1, 1, 1), np.int32), np.zeros((1, 1), np.int32)


def attend(
    q: torch.Tensor,
    layer: int,
    cache: KVCache,
    batch: DecodeBatch,
    selection: Selection | None,
    scale: float,
    phases: Phases | None,
) -> tuple[torch.Tensor, Traffic]:
    """`Kernels.attend` and what it read. Not for two threads at once: the threading layer would stop the process."""
    started = perf_counter()
    shape = cache.geometry
    groups = plain(q, torch.float32).reshape(len(q), shape.kv_heads, shape.group, shape.head_dim)
    out = torch.empty(groups.shape)
    lanes = numba.get_num_threads()
    read = np.zeros((lanes, 3), np.int64)
    index, count = NO_INDEX, NO_COUNT
    if selection is not None:
        index, count = plain(selection.index, torch.int32), plain(selection.count, torch.int32)
    lens = plain(batch.context_lens, torch.int32)
    attend_pages(
        groups, np.float32(scale), lens, plain(batch.block_table, torch.int32), index, count, selection is None,
        layer, shape.block_tokens, lanes, *cache.views, out.numpy(), read,
    )  # fmt: skip
    hot, cold, entries = read.sum(0).tolist()
    if phases is not None:
        phases.attend += perf_counter() - started
    return out.view(len(q), shape.q_heads, shape.head_dim), Traffic(
        hot, cold, entries / shape.kv_heads, int(lens.sum())
    )
