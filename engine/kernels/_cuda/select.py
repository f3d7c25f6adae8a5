# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Selection in one launch: programs score a pair's blocks, and the last to finish finds the best and lists their pages.

A pair is one (request, kv head). The threshold is found by cutting the range of scores into sixteen again and again,
until k scores lie above it: exact, ties to the first block. Sinks and window are read whatever they score.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from engine.kernels._base import Keep
from engine.kernels._cuda.attend import starts_early
from engine.kernels._cuda.page import INTERPRETED
from engine.kernels._cuda.pool import PAGE_BITS, PagedPool, number_of
from engine.kernels._cuda.worklist import WorkList


@triton.jit
def score_units(
    q, reps, ids, first, table_stride,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, SUBS: tl.constexpr, BOUNDS: tl.constexpr,
    UNITS: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores of UNITS sub-blocks from `first` for the best query of the group: q.mean, or the bound of q.k."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, DIM)
    real = (rows < GROUP)[:, None]
    unit = first + tl.arange(0, UNITS)
    # Not masked by the length, which is still on its way: beyond it the table holds -1, or nothing.
    block = tl.maximum(tl.load(ids + unit // SUBS, mask=unit // SUBS < table_stride, other=0), 0)
    mine = tl.load(q + rows[:, None] * DIM + columns[None, :], mask=real, other=0.0)
    kind: tl.constexpr = tl.float32 if UPCAST else mine.dtype
    mine = mine.to(kind)
    row = block.to(tl.int64) * SUBS + unit % SUBS
    if BOUNDS:
        at = reps + row[:, None] * (2 * DIM) + columns[None, :]
        low = tl.load(at).to(kind)
        high = tl.load(at + DIM).to(kind)
        up, down = tl.maximum(mine, 0.0).to(kind), tl.minimum(mine, 0.0).to(kind)
        s = tl.dot(down, tl.trans(low), input_precision=PRECISION).to(tl.float32)
        s = tl.dot(up, tl.trans(high), s, input_precision=PRECISION)
    else:
        mean = tl.load(reps + row[:, None] * DIM + columns[None, :]).to(kind)
        s = tl.dot(mine, tl.trans(mean), input_precision=PRECISION).to(tl.float32)
    return tl.max(tl.where(real, s, -float("inf")), 0)


@triton.jit
def threshold(keys, k, total, TURNED: tl.constexpr):
    """The largest `low` with at least k of `keys` (0 to 2 ** 26, -1 for none) >= low, and how many those are.

    TURNED: cuts lie along the second axis, so that a thread adds its own keys up and few sums are exchanged.
    """
    cuts = tl.arange(0, 16)
    low, high = total * 0, total * 0 + 67108865
    at_low = total
    while (high - low > 1) & (at_low > k):
        span = high - low
        cut = low + ((span * cuts) >> 4)
        if TURNED:
            held = tl.sum((keys[:, None] >= cut[None, :]).to(tl.int32), 0)
        else:
            held = tl.sum((keys[None, :] >= cut[:, None]).to(tl.int32), 1)
        # The last cut with enough keys and, below it in the word, how many they are: one reduction for both.
        best = tl.max(tl.where(held >= k, ((cuts + 1) << 16) | (65535 - held), 0), 0)
        fits, at_low = best >> 16, 65535 - (best & 65535)
        high = low + ((span * fits) >> 4)
        low = low + ((span * (fits - 1)) >> 4)
    return low, at_low


@triton.jit
def least_most_sum(least, most, total, other_least, other_most, other_total):
    return tl.minimum(least, other_least), tl.maximum(most, other_most), total + other_total


@triton.jit
def write_lists(
    chosen, number, total, held, pages, count, list_stride, pairs,
    FORMS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """One pair's `total` chosen places, numbered in order: hot pages into its first list, each form's into its own."""
    hot = chosen
    for i in tl.static_range(len(FORMS)):
        code = -2 - held
        mine = chosen & (held < -1)
        if len(FORMS) > 1:
            mine = mine & (code >> BITS == FORMS[i])
        one = mine.to(tl.int32)
        before = tl.cumsum(one, 0) - one
        here = tl.sum(one, 0)
        tl.store(pages + (i + 1) * list_stride + before, code & ((1 << BITS) - 1), mask=mine)
        tl.store(count + (i + 1) * pairs, here)
        number -= before
        total -= here
        hot = hot & ~mine
    tl.store(pages + number, held, mask=hot)
    tl.store(count, total)


@triton.jit
def list_ranked(
    score, held, scratch, pages, count, list_stride, pairs, want, sinks, window,
    CAP: tl.constexpr, FORMS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Write one pair's lists from scores and places [CAP] in registers: each block's rank is how many beat it.

    A key is a score, its last bits replaced by the place, so that no two are equal: scores that agree in their first
    32 - log2(CAP) bits go to the first block. Comparing all with all needs one exchange, cutting a range needs many.
    """
    STEP: tl.constexpr = 32 if CAP >= 32 else CAP
    spot = tl.arange(0, CAP)
    live = held != -1
    forced = live & ((spot < sinks) | (spot >= window))
    bits = score.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = tl.where(forced, 0x7FFFFFFF, tl.where(live, order, -0x80000000))
    key = (order & (-CAP)) | (CAP - 1 - spot)
    tl.store(scratch + spot, key)
    both = tl.sum(forced.to(tl.int32) + (live.to(tl.int32) << 16), 0)
    tl.debug_barrier()
    # Its own key comes back in the layout of a load: one key to a thread, which then counts without any other's sum.
    key = tl.load(scratch + spot)
    rank = tl.zeros([CAP], tl.int32)
    for start in tl.static_range(0, CAP, STEP):
        other = tl.load(scratch + start + tl.arange(0, STEP))
        rank += tl.sum((other[:, None] > key[None, :]).to(tl.int32), 0)
    k = tl.minimum(tl.maximum(want, both & 0xFFFF), both >> 16)
    chosen = live & (rank < k)
    number = tl.cumsum(chosen.to(tl.int32), 0) - chosen.to(tl.int32)
    write_lists(chosen, number, k, held, pages, count, list_stride, pairs, FORMS, BITS)


@triton.jit
def list_best(
    scores, held_at, pages, count, list_stride, pairs, blocks, want, sinks, window,
    SUBS: tl.constexpr, CAP: tl.constexpr, FORMS: tl.constexpr, BITS: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Write one pair's lists, each ascending, from its scores and places."""
    spot = tl.arange(0, CAP)
    held = tl.load(held_at + spot, mask=spot < blocks, other=-1, cache_modifier=".cg")
    if SUBS == 1:
        score = tl.load(scores + spot, mask=spot < blocks, other=-float("inf"), cache_modifier=".cg")
    else:
        units = spot[:, None] * SUBS + tl.arange(0, SUBS)[None, :]
        score = tl.load(scores + units, mask=units < blocks * SUBS, other=-float("inf"), cache_modifier=".cg")
        score = tl.max(score, 1)
    live = held != -1
    forced = live & ((spot < sinks) | (spot >= window))
    rival = live & (spot >= sinks) & (spot < window)
    # Evenly spaced keys make few cuts: scores nearer than 2 ** -24 of their range may count as equal.
    counted = forced.to(tl.int32) + (rival.to(tl.int32) << 16)
    least, most, both = tl.reduce(
        (tl.where(rival, score, float("inf")), tl.where(rival, score, -float("inf")), counted), 0, least_most_sum
    )
    span = most - least
    part = (score - least) / tl.where(span > 0.0, span, 1.0)
    keys = tl.where(rival, (tl.minimum(tl.maximum(part, 0.0), 1.0) * 67108864.0).to(tl.int32), -1)
    certain, rivals = both & 0xFFFF, both >> 16
    k = tl.minimum(tl.maximum(want - certain, 0), rivals)
    low, at_low = threshold(keys, k, rivals, TURNED)
    # Unless exactly k lie at or above `low`, several equal it and only the first few of them are read.
    need = k * 0
    if at_low != k:
        need = k - tl.sum((keys > low).to(tl.int32), 0)
    above = forced | (rival & (keys > low - (at_low == k).to(tl.int32)))
    tie = rival & (keys == low)
    one = above.to(tl.int32) + (tie.to(tl.int32) << 16)
    before = tl.cumsum(one, 0) - one
    chosen = above | (tie & ((before >> 16) < need))
    number = (before & 0xFFFF) + tl.minimum(before >> 16, need)
    write_lists(chosen, number, certain + k, held, pages, count, list_stride, pairs, FORMS, BITS)


@triton.jit(do_not_specialize=["sinks", "pairs", "pool_blocks", "table_stride", "capacity", "splits"])
def choose_pages(
    q, table, lens, wanted, window, place, reps, scores, held_at, done, pages, counts, tail,
    sinks, heads, pairs, pool_blocks, table_stride, capacity, splits,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, SUBS: tl.constexpr,
    BOUNDS: tl.constexpr, CAP: tl.constexpr, UNITS: tl.constexpr, FORMS: tl.constexpr, BITS: tl.constexpr,
    RANKED: tl.constexpr, TURNED: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (pair, split): scores UNITS sub-blocks; the pair's last to finish chooses and writes its lists.

    RANKED: one program scores all of a pair's blocks, and no score goes through memory.
    EARLY: as in attention, and nothing may be read or written above the wait.
    """
    if EARLY:
        gdc_wait()
    pair, part = tl.program_id(0) // splits, tl.program_id(0) % splits
    request, head = pair // heads, pair % heads
    context, want, first = tl.load(lens + request), tl.load(wanted + request), tl.load(window + request)
    blocks = tl.cdiv(context, TOKENS)
    parts = tl.maximum(tl.cdiv(blocks * SUBS, UNITS), 1)
    if part >= parts:
        return
    ids = table + request * table_stride
    score_at = scores + pair.to(tl.int64) * (CAP * SUBS)
    place_at = held_at + pair.to(tl.int64) * CAP
    spot = part * (UNITS // SUBS) + tl.arange(0, UNITS // SUBS)
    block = tl.maximum(tl.load(ids + spot, mask=spot < table_stride, other=0), 0)
    held = tl.load(place + head * pool_blocks + block)
    mine = reps + head.to(tl.int64) * pool_blocks * (SUBS * DIM * (2 if BOUNDS else 1))
    score = score_units(
        q + pair * GROUP * DIM, mine, ids, part * UNITS, table_stride,
        GROUP, ROWS, DIM, SUBS, BOUNDS, UNITS, UPCAST, PRECISION,
    )  # fmt: skip
    lists = pages + pair.to(tl.int64) * capacity
    list_stride = pairs.to(tl.int64) * capacity
    if RANKED:
        list_ranked(
            score, tl.where(spot < blocks, held, -1), place_at, lists, counts + pair, list_stride, pairs,
            want, sinks, first, UNITS, FORMS, BITS,
        )  # fmt: skip
        if head == 0:
            tl.store(tail + request, (context - 1) % TOKENS + 1)
        return
    tl.store(place_at + spot, held, mask=spot < blocks)
    unit = part * UNITS + tl.arange(0, UNITS)
    tl.store(score_at + unit, score, mask=unit < blocks * SUBS)
    tl.debug_barrier()
    before = parts - 1
    if parts > 1:
        before = tl.atomic_add(done + pair, 1, sem="acq_rel", scope="gpu")
    if before == parts - 1:
        tl.store(done + pair, 0)
        list_best(
            score_at, place_at, lists, counts + pair, list_stride, pairs, blocks, want, sinks, first,
            SUBS, CAP, FORMS, BITS, TURNED,
        )  # fmt: skip
        if head == 0:
            tl.store(tail + request, (context - 1) % TOKENS + 1)


@dataclass(frozen=True)
class Choice:
    """How to run it: sub-blocks to a program, and warps; up to `ranked` blocks one program ranks them all."""

    units: int = 64
    warps: int = 4
    ranked: int = 256
    early: bool = True


class Chooser:
    """Fixed buffers for one batch bucket. `plan` once a step; `choose` once a layer, or every other one."""

    def __init__(self, pool: PagedPool, requests: int, max_blocks: int, keep: Keep) -> None:
        device, shape = pool.hot.device, pool.geometry
        if keep.block_tokens != shape.block_tokens:
            raise ValueError(
                f"selection: keep counts blocks of {keep.block_tokens}, the pool's have {shape.block_tokens}"
            )
        if max_blocks >= 1 << 15:
            raise ValueError(f"selection: {max_blocks} blocks to a request, expected fewer than {1 << 15}")
        self.keep = keep
        self.blocks = max_blocks
        self.capacity = max(16, triton.next_power_of_2(max_blocks))
        self.wanted = torch.zeros(requests, dtype=torch.int32, device=device)
        self.window = torch.zeros(requests, dtype=torch.int32, device=device)
        pairs = requests * shape.kv_heads
        self.scores = torch.zeros(pairs * self.capacity * shape.subs_per_block, device=device)
        self.held = torch.zeros(pairs * self.capacity, dtype=torch.int32, device=device)
        self.done = torch.zeros(pairs, dtype=torch.int32, device=device)

    def plan(self, lens: list[int]) -> None:
        """What each request may read, from its length on the host."""
        self.wanted.copy_(torch.tensor([self.keep.blocks_for(n) for n in lens], dtype=torch.int32))
        self.window.copy_(torch.tensor([self.keep.window_start(n) for n in lens], dtype=torch.int32))

    def choose(
        self, q: torch.Tensor, pool: PagedPool, table: torch.Tensor, lens: torch.Tensor, work: WorkList, how: Choice
    ) -> None:
        """q [requests, q_heads, d], table int32 [requests, blocks], lens int32 [requests] -> the lists of `work`."""
        shape = pool.geometry
        rows = max(16, triton.next_power_of_2(shape.group))
        ranked = shape.subs_per_block == 1 and self.capacity <= how.ranked
        units = self.capacity if ranked else max(how.units, shape.subs_per_block)
        warps = max(4, units // 32) if ranked else how.warps
        splits = max(1, -(-self.blocks * shape.subs_per_block // units))
        early = how.early and starts_early(q.device)
        choose_pages[(work.pairs * splits,)](
            q, table, lens, self.wanted, self.window, pool.place, pool.reps, self.scores, self.held, self.done,
            work.pages, work.counts, work.tail, self.keep.sink_blocks, shape.kv_heads, work.pairs, len(pool.place),
            table.stride(0), work.capacity, splits,
            GROUP=shape.group, ROWS=rows, DIM=shape.head_dim, TOKENS=shape.block_tokens, SUBS=shape.subs_per_block,
            BOUNDS=pool.statistics == "bounds", CAP=self.capacity, UNITS=units,
            FORMS=tuple(number_of(form) for form in pool.forms), BITS=PAGE_BITS, RANKED=ranked,
            TURNED=self.capacity <= 128 * warps,  # Measured: with more than 4 keys to a thread the other way is faster.
            UPCAST=INTERPRETED, PRECISION="ieee" if q.dtype == torch.float32 else "tf32", EARLY=early,
            num_warps=warps, launch_pdl=early,
        )  # fmt: skip
