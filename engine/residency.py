"""Carries out what the policy decides: which form every block has, and what moving between forms costs."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine import forms, policies
from engine.arena import OutOfBlocks
from engine.cache import KVCache
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.host_tier import HostCounts, HostTier
from engine.knobs import Knobs
from engine.policies._base import Policy, Run

if TYPE_CHECKING:
    from engine.request import Request


class Residency:
    """``importance`` float32 [layers, max_blocks, kv_heads]; counters of moves are cumulative, bytes as written,
    seconds spent. ``host_counts`` are those of the host tier, over every cache there was.

    ``tier`` is None where the cache has no host memory behind it.
    """

    def __init__(self, cache: KVCache, knobs: Knobs) -> None:
        self.tier: HostTier | None = None
        self.host_counts = HostCounts()
        self.promote_s = self.demote_s = 0.0
        self.take(cache)
        self.demotions = self.promotions = self.evictions = self.refused = 0
        self.bytes_out = self.bytes_in = 0
        self.knobs = knobs
        self.policy: Policy = policies.get(knobs.policy)

    def take(self, cache: KVCache) -> None:
        """Work with this cache from now on; counters go on."""
        self.cache = cache
        self.importance = torch.zeros(cache.page_form.shape, dtype=torch.float32)
        self.placed = torch.zeros(cache.page_form.shape[1], dtype=torch.bool)
        cache.tables["importance"] = self.importance
        if self.tier is not None:
            self.tier.close()
        self.tier = HostTier(cache, self.placed, self.host_counts) if cache.host is not None else None

    @property
    def cold(self) -> int:
        """Code of the form blocks take when they go cold."""
        return forms.get(self.knobs.cold_form).CODE

    def observe(self, layer: int, ids: Tensor, mass: Tensor) -> None:
        """Add attention mass [blocks, kv_heads] that sampled tokens gave to blocks ``ids`` int64 [blocks]."""
        self.importance[layer, ids] += mass

    def release(self, ids: Sequence[int]) -> None:
        """Drop one reference to each block; whoever gets a freed one next starts anew."""
        if self.tier is not None:
            self.tier.settle()
        gone = self.cache.release(ids)
        self.importance[:, gone] = 0
        self.placed[gone] = False

    def place_prefix(self, ids: Sequence[int], turns: tuple[int, ...] = ()) -> None:
        """Decide the form of the consecutive full blocks of one context.

        Blocks decided before stay as they are, unless the policy is dynamic: then they may become colder.
        """
        if not self.policy.SPARSE or not ids:
            return
        index = torch.tensor(ids)
        run = Run(self.importance[:, index], self.cache.geometry.block_tokens, turns)
        target, fresh = self.policy.place(run, self.knobs), ~self.placed[index]
        if not self.policy.DYNAMIC:
            index, target, fresh = index[fresh], target[:, fresh], fresh[fresh]
        self._apply(index, target, fresh)

    def age(self, table: Sequence[int], placed: int, behind: int, turns: tuple[int, ...]) -> None:
        """Blocks [placed, behind) of ``table``, which a request wrote itself, have left its recent window."""
        if not self.policy.SPARSE:
            return
        if self.policy.DYNAMIC:
            full = behind + self.knobs.window_tokens // self.cache.geometry.block_tokens
            self.place_prefix(table[: min(full, len(table) - 1)], turns)
            return
        index = torch.tensor(table[placed:behind])
        shape = (self.importance.shape[0], len(index), self.importance.shape[2])
        code = HOT if self.knobs.hot_share == 1.0 else self.cold
        self._apply(index, torch.full(shape, code, dtype=torch.uint8), ~self.placed[index])

    def forget(self, windows: tuple[int, ...], request: Request, *, shared: bool) -> None:
        """Free what every layer that sees only its newest tokens has left behind, in blocks the request holds alone.

        With ``shared`` its prompt's blocks stay whole: another request may go on from the middle of them.
        """
        cache, widest = self.cache, max(windows, default=0)
        behind = max(0, request.computed + 1 - widest) // cache.geometry.block_tokens
        start = max(request.forgotten, len(request.keys) if shared else 0)
        if not widest or behind <= start:
            return
        ids = torch.tensor(request.block_table[start:behind])
        ids = ids[cache.ref_counts[ids] == 1]
        layers = torch.tensor([layer for layer, window in enumerate(windows) if window])
        held = cache.page_form[layers[:, None], ids]
        place, block, head = ((held != NONE) & (held != EVICTED)).nonzero(as_tuple=True)
        if self.tier is not None:
            self.tier.settle()
        cache.evict(layers[place], ids[block], head)
        request.forgotten = behind

    def restart(self, knobs: Knobs) -> None:
        """Take new settings; forms decided under the old ones are open again (nothing is moved yet)."""
        self.knobs = knobs
        self.policy = policies.get(knobs.policy)
        self.placed.zero_()

    def _apply(self, ids: Tensor, target: Tensor, fresh: Tensor) -> None:
        """Move pages of blocks [n] to form codes [layers, n, kv_heads]; only ``fresh`` bool [n] ones become hot again.

        Where decode selects, blocks get their representatives first: what is cold cannot be summed up exactly.
        """
        if len(ids) == 0:
            return
        if self.tier is not None:
            self.tier.settle()
        if self.policy.keep(self.knobs, self.cache.geometry.block_tokens) is not None:
            known = self.cache.representatives.known[ids].numpy()
            if missing := ids[torch.from_numpy(~known)].tolist():
                self.cache.finalise(missing)
        held = self.cache.page_form[:, ids]
        there = (held != EVICTED) & (held != NONE)
        self._evict(ids, there & (target == EVICTED))
        for code in torch.unique(target).tolist():
            if code not in (HOT, EVICTED):
                self.demote(*_pages(ids, (held == HOT) & (target == code)), code)
        for code in torch.unique(held).tolist():
            if code not in (NONE, HOT, EVICTED) and code < HOST and self.cache.forms[code].WHOLE:
                self.promote(*_pages(ids, (held == code) & (target == HOT) & fresh[None, :, None]), code)
        self.placed[ids] = True

    def _evict(self, ids: Tensor, mask: Tensor) -> None:
        layer, block, head = _pages(ids, mask)
        if len(layer):
            self.cache.evict(layer, block, head)
            self.evictions += len(layer)

    def promote(self, layer: Tensor, block: Tensor, head: Tensor, code: int) -> int:
        """Give pages of one cold form their full-precision form again; how many: without room they stay cold."""
        started = perf_counter()
        try:
            self.bytes_in += self.cache.promote(layer, block, head, code)
        except OutOfBlocks:
            return 0
        self.promote_s += perf_counter() - started
        self.promotions += len(layer)
        return len(layer)

    def demote(self, layer: Tensor, block: Tensor, head: Tensor, code: int) -> int:
        """Make hot pages cold; how many: as many as the cold form has room for (``refused`` counts the others)."""
        started = perf_counter()
        for count in (len(layer), min(len(layer), self.cache.arena.free_pages(code))):
            try:
                self.bytes_out += self.cache.demote(layer[:count], block[:count], head[:count], code)
            except OutOfBlocks:
                continue
            self.demote_s += perf_counter() - started
            self.demotions += count
            self.refused += len(layer) - count
            return count
        self.refused += len(layer)
        return 0


def _pages(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Layer, block and head of the pages in ``mask`` [layers, blocks, kv_heads], int64 [n] each."""
    layer, place, head = mask.nonzero(as_tuple=True)
    return layer, ids[place], head
