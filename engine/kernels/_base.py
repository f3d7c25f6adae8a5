"""What every attention kernel takes, gives and counts."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine.forms import EVICTED, HOT, NONE
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache


@dataclass
class DecodeBatch:
    """One query token per request: `block_table` int32 [B, blocks], -1 beyond; `context_lens` int32 [B] with it."""

    block_table: torch.Tensor
    context_lens: torch.Tensor


@dataclass(frozen=True)
class Plan:
    """What `Keep` means for a batch, int64 [B] each: blocks there are, blocks wanted, first block of the window."""

    blocks: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.int64]
    window: npt.NDArray[np.int64]

    @property
    def widest(self) -> int:
        return int(self.wanted.max(initial=0))


@dataclass(frozen=True)
class Keep:
    """How much of the context one step reads: `share` of its blocks, never less than sinks, window and `min_blocks`.

    With `fixed` above 0 it is that number of blocks whatever the context, as far as there are so many: a static
    structure, whose shapes do not change while a context grows.
    """

    share: float
    sink_tokens: int = 0
    window_tokens: int = 0
    min_blocks: int = 1
    block_tokens: int = 32
    fixed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"keep: share is {self.share}, expected more than 0 and at most 1")
        for name in ("sink_tokens", "window_tokens", "min_blocks", "fixed"):
            if getattr(self, name) < 0:
                raise ValueError(f"keep: {name} is {getattr(self, name)}, expected at least 0")

    @property
    def sink_blocks(self) -> int:
        return -(-self.sink_tokens // self.block_tokens)

    def window_start(self, context_len: int) -> int:
        """The first block of the window; the block being written always belongs to it."""
        return max(0, context_len - max(1, self.window_tokens)) // self.block_tokens

    def blocks_for(self, context_len: int) -> int:
        """Blocks to read in all, of those a context of this length has."""
        blocks = -(-context_len // self.block_tokens)
        if self.fixed:
            return min(blocks, max(self.fixed, self.sink_blocks + -(-self.window_tokens // self.block_tokens) + 1))
        start = self.window_start(context_len)
        forced = blocks - start + min(start, self.sink_blocks)
        wanted = ceil(blocks * self.share - 1e-9)
        return min(blocks, max(wanted, forced, self.min_blocks))

    def plan(self, context_lens: torch.Tensor) -> Plan:
        lens = context_lens.tolist()
        blocks = [-(-n // self.block_tokens) for n in lens]
        wanted, window = [self.blocks_for(n) for n in lens], [self.window_start(n) for n in lens]
        return Plan(*(np.array(column, dtype=np.int64) for column in (blocks, wanted, window)))


@dataclass
class Traffic:
    """What one `attend` call read: pages at full precision and in any cold form.

    Entries are tokens, or one for a merged page, summed over requests and averaged over kv heads.
    """

    hot_pages: int = 0
    cold_pages: int = 0
    entries_read: float = 0.0
    entries_total: int = 0


@dataclass
class Selection:
    """Places in the block table to read: `index` int32 [B, kv_heads, S], ascending, then -1; `count` [B, kv_heads]."""

    index: torch.Tensor
    count: torch.Tensor

    def blocks(self, batch: DecodeBatch) -> torch.Tensor:
        """Block ids int64 [B, kv_heads, S], -1 where nothing is selected."""
        place = self.index.long()
        table = batch.block_table.long()[:, None].expand(-1, place.shape[1], -1)
        return table.gather(2, place.clamp_min(0)).masked_fill_(place < 0, -1)

    def accesses(self, cache: KVCache, layer: int, batch: DecodeBatch) -> tuple[int, int]:
        """Hot and cold pages that reading this selection touches."""
        ids = self.blocks(batch)
        held = cache.page_form[layer, ids.clamp_min(0), torch.arange(ids.shape[1])[:, None]]
        held = held.masked_fill(ids < 0, NONE)
        hot = int((held == HOT).sum())
        return hot, int(((held != NONE) & (held != EVICTED)).sum()) - hot


class Kernels(Protocol):
    """A pair of operators for one decode step of one layer. After `attend`, `traffic` tells what that call read."""

    NAME: str

    @property
    def traffic(self) -> Traffic: ...

    def select(self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep) -> Selection:
        """q float32 [B, q_heads, head_dim]; evicted pages are never selected."""
        ...

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
        """float32 [B, q_heads, head_dim]; `selection` None reads all pages there. Marks gather, decompress, attend."""
        ...
