"""Who runs next: admission, prefix reuse, chunked prefill, and preemption when a block is missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine import admission
from engine.admission._base import Admission, Room
from engine.admission._curve import parse
from engine.cache import KVCache
from engine.holdings import Holdings
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


@dataclass(slots=True)
class Counts:
    """Cumulative. The ``bound`` ones count steps in which a request waited, or had more to compute, for that reason."""

    preemptions: int = 0
    swaps: int = 0
    recomputed: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prefix_reusable: int = 0
    kv_bound: int = 0
    cap_bound: int = 0
    budget_bound: int = 0
    audits: int = 0


class Scheduler:
    """Requests in arrival order. ``deferred`` counts those that wait, this step, for a prefix another one computes."""

    def __init__(self, cache: KVCache, residency: Residency, knobs: Knobs, max_context: int) -> None:
        self.knobs, self.max_context, self._curve = knobs, max_context, parse(knobs.curve)
        self.admission: Admission = admission.get(knobs.admission)
        """The strategy whose memory estimate decides who is admitted."""
        self.counts = Counts()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.deferred = self._steps = 0
        self._computing: dict[BlockKey, Request] = {}
        self.cache, self.residency = cache, residency
        self.holdings = Holdings(cache, residency)

    def take(self, cache: KVCache, residency: Residency) -> None:
        """Work with this cache from now on; nothing may be held of another."""
        self.cache, self.residency = cache, residency
        self.holdings.cache, self.holdings.residency = cache, residency

    @property
    def swapped(self) -> int:
        """Requests that wait with their blocks in host memory: only a swap leaves them any."""
        return sum([bool(request.block_table) for request in self.waiting]) if self.counts.swaps else 0

    @property
    def prefix(self) -> PrefixCache:
        return self.holdings.prefix

    def submit(self, request: Request) -> None:
        """Queue a request; ValueError when it can never fit."""
        length = len(request.prompt) + request.max_new_tokens
        if not request.prompt or length > self.max_context:
            raise ValueError(
                f"request of {length} tokens, expected 1 prompt token or more and {self.max_context} at most"
            )
        check_fits(length, self.cache)
        request.keys = block_keys(request.prompt, self.cache.geometry.block_tokens)
        self.waiting.append(request)

    def schedule(self, now_s: float) -> Plan:
        """Admit what fits, then choose this step's prompt chunks and decoders."""
        self._steps += 1
        if self.knobs.audit_steps and self._steps % self.knobs.audit_steps == 0:
            self.cache.check()
            self.counts.audits += 1
        self._admit(now_s)
        plan = Plan()
        for request in list(self.running):
            if request.prefilled and not request.ending and request in self.running and self._grow(request):
                plan.decode.append(request)
        plan.decode = [request for request in plan.decode if request in self.running]
        self.counts.budget_bound += spend(plan, self.running, self.knobs, self._steps)
        return plan

    def room(self, resident: float | None = None, held: int | None = None) -> Room:
        """The pool as admission sees it; ``resident``, ``held``: KV bytes and tokens, where they were just added up."""
        shape, pool_bytes = self.cache.geometry, self.cache.arena.pool_bytes
        block_bytes = shape.hot_page_bytes * shape.pages_per_block
        held = self.cache.blocks.tokens if held is None else held
        resident = self.cache.resident_bytes() if resident is None else resident
        return Room(
            pool_bytes=pool_bytes,
            total_blocks=pool_bytes // block_bytes,
            block_tokens=shape.block_tokens,
            full_bytes=block_bytes // shape.block_tokens,
            measured_bytes=resident / held if held else block_bytes / shape.block_tokens,
            max_context=self.max_context,
            lengths=tuple(len(request.prompt) + request.max_new_tokens for request in self.running),
            growth_tokens=sum(request.max_new_tokens - len(request.generated) for request in self.running),
            watermark=self.knobs.watermark,
            curve=self._curve,
            curve_margin=self.knobs.curve_margin,
        )

    def release(self, request: Request) -> None:
        """A request ended or is not wanted any more: its blocks go, unless a prefix or another one holds them."""
        (self.running if request in self.running else self.waiting).remove(request)
        self._drop_blocks(request)

    def computed(self, request: Request) -> None:
        """A prompt was prefilled to its end: decide its blocks' forms and offer them to others."""
        full = len(request.keys)
        self.residency.place_prefix(request.block_table[:full], request.turns)
        request.placed = full
        if self.knobs.prefix_cache == "on" and not request.forgotten:
            self.cache.retain(self.prefix.add(request.keys, request.block_table[:full]))
        for key in request.keys:
            self._computing.pop(key, None)

    def restart(self, knobs: Knobs, *, recompute: bool) -> None:
        """Take new settings. With ``recompute`` everything stored is dropped: what was compressed cannot come back."""
        self.knobs, self.admission, self._curve = knobs, admission.get(knobs.admission), parse(knobs.curve)
        if recompute:
            for request in reversed(list(self.running)):
                self._preempt(request, swap=False)
            for request in self.waiting:
                self._drop_blocks(request)
            self.holdings.free(self.prefix.clear())
        elif knobs.prefix_cache == "off":
            self.holdings.free(self.prefix.clear())

    def _admit(self, now_s: float) -> None:
        kept: list[Request] = []
        self.deferred, counts = 0, self.counts
        while self.waiting and len(self.running) < self.knobs.max_running:
            request = self.waiting.popleft()
            looked_up = self.knobs.prefix_cache == "on" and not request.block_table
            matched = stored_prefix(request, self.prefix, self._computing) if looked_up else []
            if matched is None:
                kept.append(request)
                self.deferred += 1
                continue
            expected = len(request.prompt) + request.max_new_tokens
            needed = blocks_needed(request, expected, matched, self.holdings)
            fits = self.admission.admits(self.room(), self.holdings.free_blocks(), needed, expected)
            if not fits or not self._start(request, matched, needed, now_s):
                kept.append(request)
                counts.kv_bound += 1
                break
        counts.cap_bound += bool(self.waiting) and len(self.running) >= self.knobs.max_running
        self.waiting.extendleft(reversed(kept))

    def _start(self, request: Request, matched: list[int], needed: int, now_s: float) -> bool:
        if request.block_table:
            if not self.holdings.swap_in(request.block_table):
                return False
            self.running.append(request)
            return True
        tokens = self.cache.geometry.block_tokens
        # At least the last token is computed anew: its logits are the request's first output.
        if matched and len(matched) * tokens >= request.length:
            matched, needed = matched[:-1], needed + 1
        self.cache.retain(matched)
        own = self.holdings.allocate(needed)
        if own is None:
            self.holdings.free(matched)
            return False
        request.block_table = matched + own
        request.computed = len(matched) * tokens
        if request.scheduled_s is None:
            request.scheduled_s, request.prefix_hits = now_s, request.computed
            self.counts.prefix_queries += len(request.prompt)
            self.counts.prefix_hits += request.computed
            self.counts.prefix_reusable += max(request.computed, self.prefix.seen(request.keys) * tokens)
        else:
            self.counts.recomputed += request.length - request.computed
        if self.knobs.prefix_cache == "on":
            self._computing.update(dict.fromkeys(request.keys[len(matched) :], request))
        self.running.append(request)
        return True

    def _grow(self, request: Request) -> bool:
        """Make room for one more token; preempts the newest request, at last this one, when there is none."""
        if request.length <= len(request.block_table) * self.cache.geometry.block_tokens:
            return True
        while (block := self.holdings.allocate(1)) is None:
            victim = self.running[-1]
            self._preempt(victim, swap=self.knobs.preemption == "swap")
            if victim is request:
                return False
        request.block_table.extend(block)
        return True

    def _preempt(self, request: Request, *, swap: bool) -> None:
        self.running.remove(request)
        if swap and request.prefilled and self.holdings.swap_out(request.block_table):
            self.counts.swaps += 1
        else:
            self._drop_blocks(request)
        request.preemptions += 1
        self.counts.preemptions += 1
        self.waiting.appendleft(request)

    def _drop_blocks(self, request: Request) -> None:
        for key in request.keys:
            if self._computing.get(key) is request:
                del self._computing[key]
        self.holdings.free(request.block_table)
        request.block_table, request.computed, request.placed, request.forgotten = [], 0, 0, 0


def check_fits(length: int, cache: KVCache) -> None:
    """ValueError where a request of so many tokens would wait for ever: a pool takes new tokens at full precision."""
    if cache.geometry.blocks_for(length) > cache.most_blocks:
        raise ValueError(
            f"request of {length} tokens, expected {cache.most_blocks * cache.geometry.block_tokens} at most: "
            "the pool has no room for more at full precision"
        )


def spend(plan: Plan, running: Sequence[Request], knobs: Knobs, step: int) -> bool:
    """Fill the plan with prompt chunks; whether the budget ran out with more to do.

    With ``step_tokens`` decoders come first, and take turns when they are more than that.
    """
    budget, total, bound = knobs.prefill_chunk, knobs.step_tokens, False
    if total:
        first = step * total % len(plan.decode) if len(plan.decode) > total else 0
        turns = plan.decode[first:] + plan.decode[:first]
        bound, plan.decode = len(turns) > total, turns[:total]
        budget = min(budget, total - len(plan.decode))
    for request in running:
        if request.prefilled:
            continue
        end = min(request.length, request.computed + budget)
        if end > request.computed:
            plan.prefill.append((request, request.computed, end))
        budget -= end - request.computed
        bound |= end < request.length
    return bound


def stored_prefix(request: Request, prefix: PrefixCache, computing: Mapping[BlockKey, Request]) -> list[int] | None:
    """Blocks of the request's prefix that are stored; None while another request is computing the next one."""
    matched = prefix.match(request.keys)
    if len(matched) < len(request.keys) and request.keys[len(matched)] in computing:
        return None
    return matched


def blocks_needed(request: Request, expected: int, matched: list[int], holdings: Holdings) -> int:
    """Blocks a request needs now: a swapped one its own, a contiguous pool all that it will ever hold."""
    if request.block_table:
        return holdings.away(request.block_table)
    tokens = expected if holdings.cache.contiguous else request.length + 1
    return holdings.cache.geometry.blocks_for(tokens) - len(matched)
