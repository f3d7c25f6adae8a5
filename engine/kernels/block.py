"""Block-sparse decode as one compiled pass to choose and one to attend: the kernel a sparse cache deserves.

The choice is Quest's: blocks with the largest upper bound of q.k over their sub-blocks (arXiv 2406.10774).
"""

from __future__ import annotations

import numba
import numpy as np
import torch

from engine.cache import KVCache
from engine.forms import EVICTED, NONE
from engine.geometry import KVGeometry
from engine.kernels import _paged
from engine.kernels._base import DecodeBatch, Keep, Selection
from engine.pool import host_pool

# Ranks of what is not scored; finite and far outside any real bound, because of fast mathematics.
ALWAYS, UNKNOWN, NEVER = np.float32(3e38), np.float32(2e38), np.float32(-3e38)


@numba.njit(cache=True, fastmath=True)
def reach_one(above, below, rows, low, high):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for i in range(above.shape[1]):
        total += below[0, i] * np.float32(rows[low + i]) + above[0, i] * np.float32(rows[high + i])
    return total


@numba.njit(cache=True, fastmath=True)
def reach_two(above, below, rows, low, high, g):  # type: ignore[no-untyped-def]
    s0 = s1 = np.float32(0.0)
    for i in range(above.shape[1]):
        x, y = np.float32(rows[low + i]), np.float32(rows[high + i])
        s0 += below[g, i] * x + above[g, i] * y
        s1 += below[g + 1, i] * x + above[g + 1, i] * y
    return max(s0, s1)


@numba.njit(cache=True, fastmath=True)
def reach_four(above, below, rows, low, high, g):  # type: ignore[no-untyped-def]
    s0 = s1 = s2 = s3 = np.float32(0.0)
    for i in range(above.shape[1]):
        x, y = np.float32(rows[low + i]), np.float32(rows[high + i])
        s0 += below[g, i] * x + above[g, i] * y
        s1 += below[g + 1, i] * x + above[g + 1, i] * y
        s2 += below[g + 2, i] * x + above[g + 2, i] * y
        s3 += below[g + 3, i] * x + above[g + 3, i] * y
    return max(max(s0, s1), max(s2, s3))


@numba.njit(cache=True, fastmath=True)
def promise(above, below, rows, scale):  # type: ignore[no-untyped-def]
    """What q.k may reach for the best query of the group within a block.

    above, below [g, d]: positive and negative part of q, so that max(q*low, q*high) = above*high + below*low;
    rows int8 [subs * rows * d]: lower then upper bound of each sub-block, or its mean alone, which is then both;
    scale [subs]. Queries go by fours or twos, the last ones overlapping, so that a row is converted once for several.
    """
    best = NEVER
    group, dim = above.shape
    step = len(rows) // len(scale)
    for sub in range(len(scale)):
        low, high = sub * step, (sub + 1) * step - dim
        if group == 1:
            best = max(best, reach_one(above, below, rows, low, high) * scale[sub])
        elif group < 4:
            for g in range(0, group, 2):
                best = max(best, reach_two(above, below, rows, low, high, min(g, group - 2)) * scale[sub])
        else:
            for g in range(0, group, 4):
                best = max(best, reach_four(above, below, rows, low, high, min(g, group - 4)) * scale[sub])
    return best


@numba.njit(cache=True)
def threshold(keys, wanted, seen):  # type: ignore[no-untyped-def]
    """The `wanted`-th largest of uint32 keys, and how many equal to it belong to the chosen; digit by digit."""
    prefix, mask, left = np.uint32(0), np.uint32(0), wanted
    for shift in (np.uint32(24), np.uint32(16), np.uint32(8), np.uint32(0)):
        seen[:] = 0
        for j in range(len(keys)):
            if keys[j] & mask == prefix:
                seen[(keys[j] >> shift) & np.uint32(255)] += 1
        digit = 255
        while seen[digit] < left:
            left -= seen[digit]
            digit -= 1
        prefix |= np.uint32(digit) << shift
        mask |= np.uint32(255) << shift
    return prefix, left


@numba.njit(cache=True)
def choose(scores, bits, wanted, index):  # type: ignore[no-untyped-def]
    """Write the places of the best `wanted` scores to `index`, ascending, ties to the lowest; how many there were.

    `bits` is the uint32 view of `scores` and is turned into keys that sort as the scores do.
    """
    there = 0
    for j in range(len(scores)):
        if scores[j] > NEVER:
            there += 1
        sign = bits[j] >> np.uint32(31)
        bits[j] ^= np.uint32(0xFFFFFFFF) if sign else np.uint32(0x80000000)
    wanted = min(wanted, there)
    found = 0
    if wanted > 0:
        edge, ties = threshold(bits, wanted, np.empty(256, np.int32))
        for j in range(len(bits)):
            equal = bits[j] == edge
            if bits[j] > edge or (equal and ties > 0):
                index[found] = j
                found += 1
                ties -= equal
    index[found:] = -1
    return found


@numba.njit(cache=True, fastmath=True, parallel=dict(_paged.PRANGE_ONLY), nogil=True)
def select_blocks(  # type: ignore[no-untyped-def]
    q, blocks, wanted, sinks, window, table, layer, lanes, rep_q, rep_scale, known, page_form, index, count
):
    """q [B, H, G, D]; blocks, wanted, window int64 [B]; index [B, H, S] and count [B, H] are written.

    Scores are cut by blocks, so that every thread is busy whatever the lengths; choosing is a pass of its own.
    """
    requests, heads, group, dim = q.shape
    start = _paged.starts(requests * heads, heads, blocks, 1, count, True)
    scores = np.empty(start[-1], np.float32)
    bits = scores.view(np.uint32)
    for lane in numba.prange(lanes):
        first, last = start[-1] * lane // lanes, start[-1] * (lane + 1) // lanes
        above, below = np.empty((group, dim), np.float32), np.empty((group, dim), np.float32)
        for pair in range(requests * heads):
            low, high = max(first, start[pair]) - start[pair], min(last, start[pair + 1]) - start[pair]
            b, h = pair // heads, pair % heads
            for g in range(group if low < high else 0):
                for i in range(dim):
                    above[g, i] = max(q[b, h, g, i], np.float32(0.0))
                    below[g, i] = min(q[b, h, g, i], np.float32(0.0))
            for j in range(low, high):
                block = table[b, j]
                form = page_form[layer, block, h]
                if form in (NONE, EVICTED):
                    rank = NEVER
                elif j < sinks or j >= window[b]:
                    rank = ALWAYS
                elif not known[block]:
                    rank = UNKNOWN
                else:
                    rank = promise(above, below, rep_q[layer, block, h], rep_scale[layer, block, h])
                scores[start[pair] + j] = rank
    for pair in range(requests * heads):
        b, h = pair // heads, pair % heads
        part = slice(start[pair], start[pair + 1])
        count[b, h] = choose(scores[part], bits[part], wanted[b], index[b, h])


class Block(_paged.InPlace):
    NAME = "block"

    def select(self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep) -> Selection:
        shape, pool = cache.geometry, host_pool(cache)
        plan = keep.plan(batch.context_lens)
        groups = _paged.plain(q, torch.float32).reshape(len(q), shape.kv_heads, shape.group, shape.head_dim)
        index = torch.empty(len(q), shape.kv_heads, plan.widest, dtype=torch.int32)
        count = torch.empty(len(q), shape.kv_heads, dtype=torch.int32)
        select_blocks(
            groups, plan.blocks, plan.wanted, keep.sink_blocks, plan.window,
            _paged.plain(batch.block_table, torch.int32), layer,
            numba.get_num_threads(), *pool.rep_views, pool.views.page_form, index.numpy(), count.numpy(),
        )  # fmt: skip
        return Selection(index, count)


def warm_up(geometry: KVGeometry) -> None:
    """Compile (or load) everything `block` and `dense` run, so that no compilation lands in a measurement."""
    cache = KVCache(geometry, 4 * geometry.pages_per_block * geometry.hot_page_bytes + geometry.hot_page_bytes * 4, 1)
    ids = cache.allocate(1)
    cache.finalise(ids)
    batch = DecodeBatch(torch.tensor([ids], dtype=torch.int32), torch.tensor([1], dtype=torch.int32))
    kernels, q = Block(), torch.zeros(1, geometry.q_heads, geometry.head_dim)
    selection = kernels.select(q, 0, cache, batch, Keep(1.0, block_tokens=geometry.block_tokens))
    for chosen in (selection, None):
        kernels.attend(q, 0, cache, batch, chosen, 1.0)


def make() -> Block:
    return Block()
