"""Blocks as the scheduler deals with them: taken, shared by prefix, given back, and sent to the host and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.arena import OutOfBlocks
from engine.cache import KVCache
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.prefix import PrefixCache
from engine.residency import Residency


class Holdings:
    """``evictions`` counts blocks the prefix cache gave up; ``fragmented`` the times enough was free, but not usable
    (no run of it was long enough, or it belonged to another form's pool).
    """

    def __init__(self, cache: KVCache, residency: Residency) -> None:
        self.cache, self.residency = cache, residency
        self.prefix = PrefixCache()
        self.evictions = self.fragmented = 0

    def allocate(self, count: int) -> list[int] | None:
        """Take blocks, forgetting prefixes nobody uses as needed; None when even that does not make room."""
        while not self.cache.can_allocate(count):
            oldest = self.prefix.pop_oldest(lambda block: int(self.cache.ref_counts[block]) == 1)
            if oldest is None:
                self._refused(count)
                return None
            self.free([oldest])
            self.evictions += 1
        try:
            return self.cache.allocate(count)
        except OutOfBlocks:
            return None

    def free(self, ids: Sequence[int]) -> None:
        if ids:
            self.residency.release(ids)

    def free_blocks(self) -> int:
        """Blocks to be had; those only the prefix cache holds count as free."""
        ids = self.prefix.block_ids()
        held_by_prefix_alone = int((self.cache.ref_counts[ids] == 1).sum()) if ids else 0
        room = self.cache.arena.free_pages(HOT) // self.cache.geometry.pages_per_block
        return min(self.cache.blocks.free, room) + held_by_prefix_alone

    def swap_out(self, table: Sequence[int]) -> bool:
        """Send the pages of blocks held by one alone to the host as they are; False where that frees nothing."""
        tier = self.residency.tier
        if tier is None:
            return False
        tier.settle()
        return tier.offload(self._pages(table, away=False)) > 0

    def swap_in(self, table: Sequence[int]) -> bool:
        """Bring back what `swap_out` sent away; False, and nothing to read yet, where the pool has no room."""
        tier = self.residency.tier
        return tier is None or tier.recall(self._pages(table, away=True))

    def away(self, table: Sequence[int]) -> int:
        """Blocks' worth of room that `swap_in` needs."""
        return -(-len(self._pages(table, away=True)[0]) // self.cache.geometry.pages_per_block)

    def _pages(self, table: Sequence[int], *, away: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Live pages of blocks held by one alone, in the pool or away from it; what the policy sent away stays."""
        index = torch.tensor(table, dtype=torch.int64)
        index = index[self.cache.ref_counts[index] == 1]
        form = self.cache.page_form[:, index]
        live = (form != NONE) & (form != EVICTED) & ((form >= HOST) == away)
        if away:
            live &= (form == HOT + HOST) | ~self.residency.placed[index][None, :, None]
        layer, place, head = live.nonzero(as_tuple=True)
        return layer, index[place], head

    def _refused(self, count: int) -> None:
        arena, size = self.cache.arena, self.cache.geometry.hot_page_bytes * self.cache.geometry.pages_per_block
        self.fragmented += count * size <= arena.pool_bytes - arena.live_bytes
