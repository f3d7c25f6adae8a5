# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Triton kernels around the paged attention of one rank: candidates, the list from an edge on, sums, the merge."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def score_keys(
    q, means, places, pinned, keys, n, heads, blocks,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, UNITS: tl.constexpr, UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (pair, tile): candidates int64 [pairs, n] as `candidates.keys` makes them; means [heads, blocks, DIM]."""
    pair, tile = tl.program_id(0), tl.program_id(1)
    request, head = pair // heads, pair % heads
    rows, columns, unit = tl.arange(0, ROWS), tl.arange(0, DIM), tile * UNITS + tl.arange(0, UNITS)
    there, real = unit < n, (rows < GROUP)[:, None]
    mine = tl.load(q + (pair * GROUP + rows[:, None]) * DIM + columns[None, :], mask=real, other=0.0)
    kind: tl.constexpr = tl.float32 if UPCAST else mine.dtype
    row = head.to(tl.int64) * blocks + request * n + unit
    mean = tl.load(means + row[:, None] * DIM + columns[None, :], mask=there[:, None], other=0.0).to(kind)
    s = tl.dot(mine.to(kind), tl.trans(mean), input_precision=PRECISION).to(tl.float32)
    score = tl.max(tl.where(real, s, -float("inf")), 0)
    at = pair.to(tl.int64) * n + unit
    place = tl.load(places + at, mask=there, other=-1)
    pin = tl.load(pinned + at, mask=there, other=0)
    bits = score.to(tl.int32, bitcast=True)
    ordered = tl.where(pin != 0, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    key = (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)
    tl.store(keys + at, tl.where(place < 0, tl.full([UNITS], 1, tl.int64) << 63, key), mask=there)


@triton.jit
def list_above(
    keys, edge, place, pages, counts, n, heads, blocks, capacity,
    CAP: tl.constexpr,
):  # fmt: skip
    """Program (pair): the pages of own blocks whose key reaches the edge, in the order they are held."""
    pair = tl.program_id(0)
    request, head = pair // heads, pair % heads
    spot = tl.arange(0, CAP)
    nothing = tl.full([CAP], 1, tl.int64) << 63
    key = tl.load(keys + pair.to(tl.int64) * n + spot, mask=spot < n, other=0)
    chosen = (spot < n) & (key != nothing) & (key >= tl.load(edge + pair))
    number = tl.cumsum(chosen.to(tl.int32), 0) - chosen.to(tl.int32)
    page = tl.load(place + head * blocks + request * n + spot, mask=spot < n, other=0)
    tl.store(pages + pair.to(tl.int64) * capacity + number, page, mask=chosen)
    tl.store(counts + pair, tl.sum(chosen.to(tl.int32), 0))


@triton.jit
def log_sums(weight, out, parts, GROUP: tl.constexpr, LANES: tl.constexpr, DIM: tl.constexpr):
    """Program (pair): out [pairs, GROUP], natural log of the sum over the pair's parts; -inf where nothing was read."""
    pair, lanes = tl.program_id(0), tl.arange(0, LANES)
    real = lanes < GROUP
    top = tl.full([LANES], -1e30, tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for part in range(parts):
        own = tl.load(weight + ((pair * parts + part) * GROUP + lanes) * DIM, mask=real, other=-1e30)
        higher = tl.maximum(top, own)
        total = total * tl.exp2(top - higher) + tl.exp2(own - higher)
        top = higher
    found = (top + tl.log2(total)) * 0.6931471805599453
    tl.store(out + pair * GROUP + lanes, tl.where(top < -1e29, -float("inf"), found), mask=real)


@triton.jit
def merge_ranks(parts, out, rows, stride, RANKS: tl.constexpr, DIM: tl.constexpr):
    """Program (row): out [rows, DIM] from parts [RANKS, stride]: results [rows, DIM], then the logs of their sums."""
    row, columns = tl.program_id(0), tl.arange(0, DIM)
    top = -float("inf")
    for rank in tl.static_range(RANKS):
        top = tl.maximum(top, tl.load(parts + rank * stride + rows * DIM + row))
    total = 0.0
    whole = tl.zeros([DIM], tl.float32)
    for rank in tl.static_range(RANKS):
        weight = tl.exp(tl.load(parts + rank * stride + rows * DIM + row) - top)
        total += weight
        whole += weight * tl.load(parts + rank * stride + row * DIM + columns)
    tl.store(out + row * DIM + columns, (whole / total).to(out.dtype.element_ty))
