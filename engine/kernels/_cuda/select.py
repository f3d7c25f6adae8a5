# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Selection in one launch: a program scores one pair's blocks, finds the k best and lists their pages.

A pair is one (request, kv head). The threshold is found by cutting the range of scores into sixteen again and again,
until k scores lie above it: exact, ties to the first block. Sinks and window are read whatever they score.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engine.kernels._base import Keep
from engine.kernels._cuda.attend import INTERPRETED
from engine.kernels._cuda.pool import PagedPool
from engine.kernels._cuda.worklist import WorkList


@triton.jit
def score_units(
    q, reps, ids, scores, units, head, heads,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, SUBS: tl.constexpr, BOUNDS: tl.constexpr,
    UNITS: tl.constexpr, STAGES: tl.constexpr, UPCAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the score of each sub-block for the best query of the group: q.mean, or the upper bound of q.k."""
    rows, columns, lanes = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, UNITS)
    real = (rows < GROUP)[:, None]
    mine = tl.load(q + rows[:, None] * DIM + columns[None, :], mask=real, other=0.0)
    kind: tl.constexpr = tl.float32 if UPCAST else mine.dtype
    mine = mine.to(kind)
    up, down = tl.maximum(mine, 0.0).to(kind), tl.minimum(mine, 0.0).to(kind)
    block = tl.load(ids + lanes // SUBS, mask=lanes < units, other=0)
    for start in tl.range(0, units, UNITS, num_stages=STAGES):
        ahead = start + UNITS + lanes
        following = tl.load(ids + ahead // SUBS, mask=ahead < units, other=0)
        unit = start + lanes
        there = unit < units
        row = (block.to(tl.int64) * heads + head) * SUBS + unit % SUBS
        if BOUNDS:
            at = reps + row[:, None] * (2 * DIM) + columns[None, :]
            low = tl.load(at, mask=there[:, None], other=0.0).to(kind)
            high = tl.load(at + DIM, mask=there[:, None], other=0.0).to(kind)
            s = tl.dot(down, tl.trans(low), input_precision=PRECISION).to(tl.float32)
            s = tl.dot(up, tl.trans(high), s, input_precision=PRECISION)
        else:
            mean = tl.load(reps + row[:, None] * DIM + columns[None, :], mask=there[:, None], other=0.0).to(kind)
            s = tl.dot(mine, tl.trans(mean), input_precision=PRECISION).to(tl.float32)
        tl.store(scores + unit, tl.max(tl.where(real, s, -float("inf")), 0), mask=there)
        block = following


@triton.jit
def threshold(keys, k, total):
    """The largest `low` with at least k of `keys` >= low (int32, the least value is no key); how many, and above it."""
    cuts = tl.arange(0, 16).to(tl.int64)
    low = tl.full([], -2147483647, tl.int64)
    high = tl.full([], 2147483648, tl.int64)
    at_low, at_high = total, total * 0
    while (high - low > 1) & (at_low > k):
        span = high - low
        cut = (low + ((span * cuts) >> 4)).to(tl.int32)
        held = tl.sum((keys[None, :] >= cut[:, None]).to(tl.int32), 1)
        enough = held >= k
        fits = tl.sum(enough.to(tl.int64), 0)
        at_low = tl.min(tl.where(enough, held, 2147483647), 0)
        at_high = tl.maximum(at_high, tl.max(tl.where(enough, 0, held), 0))
        high = low + ((span * fits) >> 4)
        low = low + ((span * (fits - 1)) >> 4)
    return low.to(tl.int32), at_low, at_high


@triton.jit(do_not_specialize=["sinks", "pairs", "table_stride", "capacity"])
def choose_pages(
    q, table, lens, wanted, window, place, reps, scores, pages, counts, tail,
    sinks, heads, pairs, table_stride, capacity,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, SUBS: tl.constexpr,
    BOUNDS: tl.constexpr, CAP: tl.constexpr, UNITS: tl.constexpr, COLD: tl.constexpr, STAGES: tl.constexpr,
    UPCAST: tl.constexpr, PRECISION: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Program (pair). Writes its lists, hot and cold, each ascending; the block being written is the last hot entry."""
    pair = tl.program_id(0)
    request, head = pair // heads, pair % heads
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    context, want, first = tl.load(lens + request), tl.load(wanted + request), tl.load(window + request)
    blocks = tl.cdiv(context, TOKENS)
    spot = tl.arange(0, CAP)
    ids = table + request * table_stride
    mine = tl.load(ids + spot, mask=spot < blocks, other=0)
    held = tl.load(place + mine * heads + head, mask=spot < blocks, other=-1)
    at = scores + pair.to(tl.int64) * (CAP * SUBS)
    score_units(
        q + pair * GROUP * DIM, reps, ids, at, blocks * SUBS, head, heads,
        GROUP, ROWS, DIM, SUBS, BOUNDS, UNITS, STAGES, UPCAST, PRECISION,
    )  # fmt: skip
    tl.debug_barrier()
    units = spot[:, None] * SUBS + tl.arange(0, SUBS)[None, :]
    score = tl.max(tl.load(at + units, mask=units < blocks * SUBS, other=-float("inf")), 1)
    live = held != -1
    forced = live & ((spot < sinks) | (spot >= first))
    rival = live & (spot >= sinks) & (spot < first)
    bits = score.to(tl.int32, bitcast=True)
    keys = tl.where(rival, tl.maximum(bits ^ ((bits >> 31) & 0x7FFFFFFF), -2147483647), -2147483648)
    both = tl.sum(forced.to(tl.int32) + (rival.to(tl.int32) << 16), 0)
    certain, rivals = both & 0xFFFF, both >> 16
    k = tl.minimum(tl.maximum(want - certain, 0), rivals)
    low, at_low, at_high = threshold(keys, k, rivals)
    # Unless exactly k lie at or above `low`, several equal it and only the first few of them are read.
    need = tl.where(at_low == k, 0, k - at_high)
    above = forced | (rival & (keys > low - (at_low == k).to(tl.int32)))
    tie = rival & (keys == low)
    one = above.to(tl.int32) + (tie.to(tl.int32) << 16)
    before = tl.cumsum(one, 0) - one
    ahead = tl.minimum(before >> 16, need)
    chosen = above | (tie & ((before >> 16) < need))
    number = (before & 0xFFFF) + ahead
    if COLD:
        frozen = chosen & (held < -1)
        warm = chosen & (held >= 0)
        cold_number = tl.cumsum(frozen.to(tl.int32), 0) - frozen.to(tl.int32)
        n_cold = tl.sum(frozen.to(tl.int32), 0)
        tl.store(pages + pair * capacity + number - cold_number, held, mask=warm)
        tl.store(pages + (pairs + pair) * capacity + cold_number, -2 - held, mask=frozen)
        tl.store(counts + pair, certain + k - n_cold)
        tl.store(counts + pairs + pair, n_cold)
    else:
        tl.store(pages + pair * capacity + number, held, mask=chosen)
        tl.store(counts + pair, certain + k)
    if head == 0:
        tl.store(tail + request, (context - 1) % TOKENS + 1)


@dataclass(frozen=True)
class Choice:
    """How to run it: representatives to a tile, warps, tiles in flight."""

    units: int = 64
    warps: int = 8
    stages: int = 4
    dependent: bool = False


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
        self.capacity = max(16, triton.next_power_of_2(max_blocks))
        self.wanted = torch.zeros(requests, dtype=torch.int32, device=device)
        self.window = torch.zeros(requests, dtype=torch.int32, device=device)
        units = requests * shape.kv_heads * self.capacity * shape.subs_per_block
        self.scores = torch.zeros(units, device=device)

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
        choose_pages[(work.pairs,)](
            q, table, lens, self.wanted, self.window, pool.place, pool.reps, self.scores, work.pages, work.counts,
            work.tail, self.keep.sink_blocks, shape.kv_heads, work.pairs, table.stride(0), work.capacity,
            GROUP=shape.group, ROWS=rows, DIM=shape.head_dim, TOKENS=shape.block_tokens, SUBS=shape.subs_per_block,
            BOUNDS=pool.statistics == "bounds", CAP=self.capacity, UNITS=how.units, COLD=len(pool.cold) > 0,
            STAGES=how.stages, UPCAST=INTERPRETED, PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
            DEPENDENT=how.dependent, num_warps=how.warps, **({"launch_pdl": True} if how.dependent else {}),
        )  # fmt: skip
