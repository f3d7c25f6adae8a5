"""Carries out what the policy decides: which form every block has, and what moving between forms costs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine import policies
from engine.arena import OutOfBlocks
from engine.cache import KVCache
from engine.forms import EVICTED
from engine.forms.cold_int8 import CODE as COLD
from engine.forms.hot import CODE as HOT
from engine.knobs import Knobs
from engine.policies._base import Policy


class Residency:
    """``importance`` float32 [layers, max_blocks, kv_heads]; counters of moves are cumulative, bytes as written."""

    def __init__(self, cache: KVCache, knobs: Knobs) -> None:
        self.cache = cache
        self.importance = torch.zeros(cache.page_form.shape, dtype=torch.float32)
        self.placed = torch.zeros(cache.page_form.shape[1], dtype=torch.bool)
        self.demotions = self.promotions = self.evictions = 0
        self.bytes_out = self.bytes_in = 0
        self.knobs = knobs
        self.policy: Policy = policies.get(knobs.policy)

    def observe(self, layer: int, ids: Tensor, mass: Tensor) -> None:
        """Add attention mass [blocks, kv_heads] that prompt tokens gave to blocks ``ids`` int64 [blocks]."""
        self.importance[layer, ids] += mass

    def forget(self, ids: Sequence[int]) -> None:
        """These blocks were freed: whoever gets them next starts anew."""
        self.importance[:, ids] = 0
        self.placed[ids] = False

    def place_prefix(self, ids: Sequence[int]) -> None:
        """Decide the form of the consecutive full blocks of one prompt; blocks decided before stay as they are."""
        if not self.policy.SPARSE or not ids:
            return
        index = torch.tensor(ids)
        forms = self.policy.place(self.importance[:, index], self.knobs, self.cache.geometry.block_tokens)
        fresh = ~self.placed[index]
        self._apply(index[fresh], forms[:, fresh])

    def age(self, ids: Sequence[int]) -> None:
        """Blocks a request wrote itself have left its recent window: they go cold."""
        if not self.policy.SPARSE or not ids:
            return
        index = torch.tensor(ids)
        shape = (self.importance.shape[0], len(ids), self.importance.shape[2])
        self._apply(index, torch.full(shape, COLD, dtype=torch.uint8))

    def restart(self, knobs: Knobs) -> None:
        """Take new settings; forms decided under the old ones are open again (nothing is moved yet)."""
        self.knobs = knobs
        self.policy = policies.get(knobs.policy)
        self.placed.zero_()

    def _apply(self, ids: Tensor, target: Tensor) -> None:
        """Move pages of blocks [n] to form codes [layers, n, kv_heads]; blocks get their representatives first."""
        if len(ids) == 0:
            return
        known = self.cache.representatives.known[ids].numpy()
        if missing := ids[torch.from_numpy(~known)].tolist():
            self.cache.finalise(missing)
        held = self.cache.page_form[:, ids]
        self._move(ids, (held == HOT) & (target == COLD), "demote")
        self._move(ids, (held == COLD) & (target == HOT), "promote")
        self._move(ids, (held != EVICTED) & (target == EVICTED), "evict")
        self.placed[ids] = True

    def _move(self, ids: Tensor, mask: Tensor, how: str) -> None:
        layer, place, head = mask.nonzero(as_tuple=True)
        if len(layer) == 0:
            return
        block = ids[place]
        if how == "demote":
            self.bytes_out += self.cache.demote(layer, block, head)
            self.demotions += len(layer)
        elif how == "promote":
            self.promote(layer, block, head)
        else:
            self.cache.evict(layer, block, head)
            self.evictions += len(layer)

    def promote(self, layer: Tensor, block: Tensor, head: Tensor) -> None:
        """Give cold pages a full-precision form again; where the pool has no room they stay cold."""
        try:
            self.bytes_in += self.cache.promote(layer, block, head)
        except OutOfBlocks:
            return
        self.promotions += len(layer)

    def demote(self, layer: Tensor, block: Tensor, head: Tensor) -> None:
        """Make hot pages cold."""
        self.bytes_out += self.cache.demote(layer, block, head)
        self.demotions += len(layer)
