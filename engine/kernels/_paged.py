"""Compiled attention over pages, straight through the page table: what `dense` and `block` run.

The float32 soft maximum is carried from page to page. Work is cut by pages, not by requests, so that every thread is
busy whatever the lengths.
"""

from __future__ import annotations

import numba
import numpy as np
import torch

from engine import forms
from engine.cache import KVCache
from engine.kernels import generic
from engine.kernels._base import DecodeBatch, Selection, Traffic
from engine.kernels._read import HOT, UNREAD, read_page, reader_of
from engine.kernels._rows import LOWEST, merge, scale_query
from engine.pool import LINE, host_pool
from engine.timeline import Mark

# Threads of this layer sleep between calls. A spinning layer would take the cores from torch's own threads.
numba.config.THREADING_LAYER = "workqueue"

# Pages between asking for a page and reading it.
AHEAD = 2
# Only the loops written as parallel ones are: each region costs a wake-up of every thread.
PRANGE_ONLY = {"prange": True} | dict.fromkeys(
    ("comprehension", "inplace_binop", "numpy", "reduction", "setitem", "stencil"), False
)


@numba.njit(cache=True)
def starts(pairs, heads, lens, tokens, count, everything):  # type: ignore[no-untyped-def]
    """Pages to read before each (request, kv head), int64 [pairs + 1]."""
    start = np.zeros(pairs + 1, np.int64)
    for pair in range(pairs):
        b, h = pair // heads, pair % heads
        start[pair + 1] = start[pair] + ((lens[b] + tokens - 1) // tokens if everything else count[b, h])
    return start


@numba.njit(cache=True, fastmath=True, parallel=dict(PRANGE_ONLY), nogil=True)
def attend_pages(  # type: ignore[no-untyped-def]
    q, scale, lens, table, index, count, everything, layer, tokens, rank, lanes, reader_at,
    rows_f32, rows_i8, floats, page_offset, page_form, lines, page_lines, page_entries, out, read,
):  # fmt: skip
    """q, out [B, H, G, D]; index, count as in Selection, unless `everything`; read int64 [lanes, 3] is written."""
    requests, heads, group, dim = q.shape
    start = starts(requests * heads, heads, lens, tokens, count, everything)
    peak = np.full((requests * heads, lanes, group), LOWEST, np.float32)
    total = np.zeros((requests * heads, lanes, group), np.float32)
    acc = np.zeros((requests * heads, lanes, group, dim), np.float32)
    for lane in numba.prange(lanes):
        first, last = start[-1] * lane // lanes, start[-1] * (lane + 1) // lanes
        s, mine = np.empty((group, tokens), np.float32), np.empty((group, dim), np.float32)
        bits = np.empty(tokens, np.int32)
        powers = bits.view(np.float32)
        plain, wide = np.empty((tokens, dim), np.int8), np.empty((tokens, dim), np.float32)
        inner = np.empty((group, rank), np.float32)
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
                lead = page_offset[layer, later, h] // LINE, page_lines[page_form[layer, later, h]]
                reader = reader_at[form]
                if reader != UNREAD:
                    kept = page_entries[form]
                    read_page(
                        reader, page_offset[layer, block, h], n, tokens, kept, lead, mine, top, sums, sofar, s, bits,
                        powers, plain, wide, inner, rows_f32, rows_i8, floats, lines,
                    )  # fmt: skip
                    hot, cold = hot + (reader == HOT), cold + (reader != HOT)
                    entries += min(n, kept)
        read[lane, 0], read[lane, 1], read[lane, 2] = hot, cold, entries
    for pair in range(requests * heads):
        merge(peak[pair], total[pair], acc[pair], out[pair // heads, pair % heads])


def plain(tensor: torch.Tensor, dtype: torch.dtype) -> np.ndarray:
    """The array a compiled kernel expects; another type or layout would have it compiled once more."""
    array: np.ndarray = tensor.to(dtype).contiguous().numpy()
    return array


NO_INDEX, NO_COUNT = np.zeros((1, 1, 1), np.int32), np.zeros((1, 1), np.int32)


class InPlace:
    """Kernels that read pages in place through the page table; how they choose is each one's own.

    Not for two threads at once: the threading layer would stop the process.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._reader_at = reader_of()
        self._unread = [code for code in forms.codes().values() if self._reader_at[code] == UNREAD]
        self._decoding = generic.make()

    def attend(
        self,
        q: torch.Tensor,
        layer: int,
        cache: KVCache,
        batch: DecodeBatch,
        selection: Selection | None,
        scale: float,
        mark: Mark | None = None,
    ) -> torch.Tensor:
        """As `Kernels.attend`; a cache with pages of a form that has no compiled reader is read by decoding them."""
        if self._unread and cache.page_counts[layer, self._unread].any():
            out = self._decoding.attend(q, layer, cache, batch, selection, scale, mark)
            self.traffic = self._decoding.traffic
            return out
        shape = cache.geometry
        groups = plain(q, torch.float32).reshape(len(q), shape.kv_heads, shape.group, shape.head_dim)
        out = torch.empty(groups.shape)
        lanes = numba.get_num_threads()
        read = np.zeros((lanes, 3), np.int64)
        index, count = NO_INDEX, NO_COUNT
        if selection is not None:
            index, count = plain(selection.index, torch.int32), plain(selection.count, torch.int32)
        lens, views = plain(batch.context_lens, torch.int32), host_pool(cache).views
        attend_pages(
            groups, np.float32(scale), lens, plain(batch.block_table, torch.int32), index, count, selection is None,
            layer, shape.block_tokens, shape.components, lanes, self._reader_at, *views, out.numpy(), read,
        )  # fmt: skip
        hot, cold, entries = read.sum(0).tolist()
        if mark is not None:
            mark("attend")
        self.traffic = Traffic(hot, cold, entries / shape.kv_heads, int(lens.sum()))
        return out.view(len(q), shape.q_heads, shape.head_dim)
