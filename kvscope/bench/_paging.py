"""What fixed-size blocks cost: space inside them that holds nothing, and bookkeeping that grows with their number.

A request of L tokens keeps ``kept`` × L entries. Blocks of b entries waste what their last one does not fill, half a
block on average, whatever L is: the shorter what is kept, the larger the share. Each block also has a table entry and,
where reads are sparse, a representative to be chosen by: small blocks pay that often. The sum has a minimum between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SIZES = tuple(1 << power for power in range(10))
WASTE_LIMIT = 0.15
"""The article's limit (§4.4): above it a smaller or variable block is worth a look."""
EQUAL = 0.005
"""Totals this close count as equal, and the larger block wins: reads like long runs."""
SUBDIVISION = 8
"""The what-if: the last block may be cut into eighths, one table entry a piece (powers of two)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """``entry_bytes`` of one kept token over all layers, ``block_bytes`` of bookkeeping a block, ``kept`` of tokens."""

    entry_bytes: float
    block_bytes: float
    kept: float = 1.0

    def entries(self, length: int) -> int:
        """Entries a request of that length keeps; at least one."""
        return max(1, math.ceil(self.kept * length))


@dataclass(frozen=True, slots=True)
class Paged:
    """All requests together in blocks of one size, in bytes."""

    size: int
    used: float
    allocated: float
    table: float

    @property
    def waste_share(self) -> float:
        """Space in blocks that holds nothing / all space in blocks."""
        return 1 - self.used / self.allocated

    @property
    def table_share(self) -> float:
        """Bookkeeping / everything."""
        return self.table / (self.allocated + self.table)

    @property
    def total_share(self) -> float:
        """Everything that is no kept entry / everything."""
        return 1 - self.used / (self.allocated + self.table)


def paged(lengths: Iterable[int], size: int, costs: Costs) -> Paged:
    """Put requests into blocks of ``size`` entries."""
    entries = [costs.entries(length) for length in lengths]
    blocks = sum(-(-count // size) for count in entries)
    return Paged(size, sum(entries) * costs.entry_bytes, blocks * size * costs.entry_bytes, blocks * costs.block_bytes)


def paged_with_tails(lengths: Iterable[int], size: int, costs: Costs) -> Paged:
    """The what-if: like `paged`, but the last block is made of pieces, the smallest an eighth of a block."""
    entries = [costs.entries(length) for length in lengths]
    unit = max(1, size // SUBDIVISION)
    units = [-(-(count % size) // unit) for count in entries]
    allocated = sum(count // size * size + tail * unit for count, tail in zip(entries, units, strict=True))
    blocks = sum(count // size + tail.bit_count() for count, tail in zip(entries, units, strict=True))
    return Paged(size, sum(entries) * costs.entry_bytes, allocated * costs.entry_bytes, blocks * costs.block_bytes)


def recommended(found: Sequence[Paged]) -> Paged:
    """Return the largest size whose total is within ``EQUAL`` of the least, among those within the waste limit."""
    allowed = [one for one in found if one.waste_share <= WASTE_LIMIT] or list(found)
    least = min(one.total_share for one in allowed)
    return max((one for one in allowed if one.total_share <= least + EQUAL), key=lambda one: one.size)


def balance(lengths: Sequence[int], costs: Costs) -> float:
    """Return the size at which half a wasted block costs what the bookkeeping of all blocks does."""
    mean = sum(costs.entries(length) for length in lengths) / len(lengths)
    return math.sqrt(2 * costs.block_bytes * mean / costs.entry_bytes)
