"""Who runs next: admission, prefix reuse, chunked prefill, and preemption when a block is missing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine import admission
from engine.admission._base import Admission, Room
from engine.arena import OutOfBlocks
from engine.cache import KVCache
from engine.forms.hot import CODE as HOT
from engine.knobs import Knobs
from engine.prefix import BlockKey, PrefixCache, block_keys
from engine.request import Request
from engine.residency import Residency


@dataclass(slots=True)
class Plan:
    """One step's work: prompt chunks (request, start, end) to prefill and requests that decode one token each."""

    prefill: list[tuple[Request, int, int]] = field(default_factory=list)
    decode: list[Request] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.prefill or self.decode)


class Scheduler:
    """Requests in arrival order. Counters are cumulative.

    ``deferred`` counts the requests that wait, this step, for a prefix another one is computing.
    """

    def __init__(self, cache: KVCache, residency: Residency, knobs: Knobs, max_context: int) -> None:
        self.cache, self.residency, self.knobs = cache, residency, knobs
        self.max_context = max_context
        self.admission: Admission = admission.get(knobs.admission)
        """The strategy whose memory estimate decides who is admitted."""
        self.prefix = PrefixCache()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.preemptions = self.recomputed = self.prefix_queries = self.prefix_hits = self.evictions = 0
        self.deferred = 0
        self._computing: dict[BlockKey, Request] = {}

    def submit(self, request: Request) -> None:
        """Queue a request; ValueError when it can never fit."""
        length = len(request.prompt) + request.max_new_tokens
        if not request.prompt or length > self.max_context:
            raise ValueError(
                f"request of {length} tokens, expected 1 prompt token or more and {self.max_context} at most"
            )
        request.keys = block_keys(request.prompt, self.cache.geometry.block_tokens)
        self.waiting.append(request)

    def schedule(self, now_s: float) -> Plan:
        """Admit what fits, then choose this step's prompt chunks and decoders."""
        self._admit(now_s)
        plan = Plan()
        for request in list(self.running):
            if request.prefilled and request in self.running and self._grow(request):
                plan.decode.append(request)
        plan.decode = [request for request in plan.decode if request in self.running]
        budget = self.knobs.prefill_chunk
        for request in self.running:
            if budget > 0 and not request.prefilled:
                end = min(request.length, request.computed + budget)
                plan.prefill.append((request, request.computed, end))
                budget -= end - request.computed
        return plan

    def room(self) -> Room:
        """The pool as admission sees it."""
        shape = self.cache.geometry
        block_bytes = shape.hot_page_bytes * shape.pages_per_block
        held = int(self.cache.blocks.filled.sum())
        return Room(
            pool_bytes=self.cache.arena.pool_bytes,
            total_blocks=self.cache.arena.pool_bytes // block_bytes,
            full_bytes=block_bytes // shape.block_tokens,
            measured_bytes=self.cache.resident_bytes() / held if held else block_bytes / shape.block_tokens,
            max_context=self.max_context,
            running=len(self.running),
            watermark=self.knobs.watermark,
        )

    def release(self, request: Request) -> None:
        """A request ended: its blocks go, unless a prefix or another request holds them."""
        self.running.remove(request)
        self._drop_blocks(request)

    def computed(self, request: Request) -> None:
        """A prompt was prefilled to its end: decide its blocks' forms and offer them to others."""
        full = len(request.keys)
        self.residency.place_prefix(request.block_table[:full])
        request.placed = full
        self.cache.retain(self.prefix.add(request.keys, request.block_table[:full]))
        for key in request.keys:
            self._computing.pop(key, None)

    def restart(self, knobs: Knobs, *, recompute: bool) -> None:
        """Take new settings. With ``recompute`` everything stored is dropped: what was compressed cannot come back."""
        self.knobs, self.admission = knobs, admission.get(knobs.admission)
        if recompute:
            for request in reversed(list(self.running)):
                self._preempt(request)
            self._free(self.prefix.clear())

    def _admit(self, now_s: float) -> None:
        kept: list[Request] = []
        self.deferred = 0
        while self.waiting and len(self.running) < self.knobs.max_running:
            request = self.waiting.popleft()
            matched = self.prefix.match(request.keys)
            if len(matched) < len(request.keys) and request.keys[len(matched)] in self._computing:
                kept.append(request)
                self.deferred += 1
                continue
            needed = self.cache.geometry.blocks_for(request.length + 1) - len(matched)
            if not self.admission.admits(self.room(), self._free_blocks(), needed) or not self._start(
                request, matched, needed, now_s
            ):
                kept.append(request)
                break
        self.waiting.extendleft(reversed(kept))

    def _start(self, request: Request, matched: list[int], needed: int, now_s: float) -> bool:
        tokens = self.cache.geometry.block_tokens
        # At least the last token is computed anew: its logits are the request's first output.
        if matched and len(matched) * tokens >= request.length:
            matched, needed = matched[:-1], needed + 1
        self.cache.retain(matched)
        own = self._allocate(needed)
        if own is None:
            self._free(matched)
            return False
        request.block_table = matched + own
        request.computed = len(matched) * tokens
        if request.scheduled_s is None:
            request.scheduled_s, request.prefix_hits = now_s, request.computed
            self.prefix_queries += len(request.prompt)
            self.prefix_hits += request.computed
        else:
            self.recomputed += request.length - request.computed
        self._computing.update(dict.fromkeys(request.keys[len(matched) :], request))
        self.running.append(request)
        return True

    def _grow(self, request: Request) -> bool:
        """Make room for one more token; preempts the newest request, at last this one, when there is none."""
        if request.length <= len(request.block_table) * self.cache.geometry.block_tokens:
            return True
        while (block := self._allocate(1)) is None:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        request.block_table.extend(block)
        return True

    def _allocate(self, count: int) -> list[int] | None:
        """Take blocks, forgetting prefixes nobody uses as needed; None when even that does not make room."""
        while not self.cache.can_allocate(count):
            oldest = self.prefix.pop_oldest(lambda block: int(self.cache.ref_counts[block]) == 1)
            if oldest is None:
                return None
            self._free([oldest])
            self.evictions += 1
        try:
            return self.cache.allocate(count)
        except OutOfBlocks:
            return None

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._drop_blocks(request)
        request.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(request)

    def _drop_blocks(self, request: Request) -> None:
        for key in request.keys:
            if self._computing.get(key) is request:
                del self._computing[key]
        self._free(request.block_table)
        request.block_table, request.computed, request.placed = [], 0, 0

    def _free(self, ids: list[int]) -> None:
        if ids:
            self.residency.forget(self.cache.release(ids))

    def _free_blocks(self) -> int:
        """Blocks to be had; those only the prefix cache holds count as free."""
        ids = self.prefix.block_ids()
        held_by_prefix_alone = int((self.cache.ref_counts[ids] == 1).sum()) if ids else 0
        room = self.cache.arena.free_pages(HOT) // self.cache.geometry.pages_per_block
        return min(self.cache.blocks.free, room) + held_by_prefix_alone
