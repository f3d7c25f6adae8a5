"""The engine: one step is schedule, run, settle."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine import devices
from engine.build import check_knobs, make_cache
from engine.cache import KVCache
from engine.devices._base import Device
from engine.devices._runner import Runner
from engine.knobs import Knobs
from engine.model import Decoder, ModelConfig
from engine.reconfigure import reconfigure
from engine.request import Check, Listener, Request
from engine.residency import Residency
from engine.sampler import GREEDY, Sampling
from engine.scheduler import Scheduler
from engine.tiers import Promoter

if TYPE_CHECKING:
    from engine.instruments import Instruments
    from engine.judge import Judge


FIRST_TURN = 2
"""Turns of a conversation that has one answer: the system prompt and a question."""


class Engine:
    """A model, its KV and its requests. ``probe`` is None when nothing observes; nothing is measured for it then."""

    knobs: Knobs
    cache: KVCache
    residency: Residency
    scheduler: Scheduler
    promoter: Promoter
    tokens_generated: int
    tokens_right: int
    tokens_checked: int
    later_right: int
    later_checked: int
    cancelled: int

    def __init__(
        self,
        config: ModelConfig,
        model: Decoder,
        knobs: Knobs,
        *,
        pool_bytes: int,
        max_context: int,
        block_tokens: int = 32,
        device: Device | None = None,
    ) -> None:
        """``device`` None is the CPU; the model must lie where it says. ValueError for what a device does not run."""
        self.config, self.model, self.knobs = config, model, knobs
        self.device = device or devices.get("cpu")
        self.pool_bytes, self.block_tokens = pool_bytes, block_tokens
        self.cache = make_cache(config, knobs, pool_bytes, block_tokens, self.device)
        self.residency = Residency(self.cache, knobs)
        self.scheduler = Scheduler(self.cache, self.residency, knobs, max_context)
        self.promoter = Promoter(self.residency)
        self.finished: list[Request] = []
        self.probe: Instruments | None = None
        self.judge: Judge | None = None
        self.tokens_generated = self.tokens_right = self.tokens_checked = 0
        self.later_right = self.later_checked = self.cancelled = 0
        self._next_id = 0
        self.working: tuple[Request, ...] = ()
        """Whom the step is at work for: who is at fault when it raises."""
        self.runner = Runner(self, self.device)

    def take(self, cache: KVCache) -> None:
        """Work with this cache from now on; nothing may be held of the old one. Counters go on."""
        self.cache = cache
        self.residency.take(cache)
        self.scheduler.take(cache, self.residency)
        self.promoter.take(self.residency)

    def warm_up(self) -> None:
        """Compile what compiles at first use, so that no compilation lands in a measurement."""
        self.runner.warm_up()

    def submit(
        self,
        prompt: tuple[int, ...],
        max_new_tokens: int,
        check: Check | None = None,
        *,
        sampling: Sampling = GREEDY,
        listener: Listener | None = None,
        turns: tuple[int, ...] = (),
    ) -> Request:
        """Queue a request for ``max_new_tokens`` tokens, or fewer if it stops; ValueError when it can never fit."""
        request = Request(self._next_id, prompt, max_new_tokens, monotonic(), check, sampling, listener, turns=turns)
        self.scheduler.submit(request)
        self._next_id += 1
        return request

    def cancel(self, request: Request) -> None:
        """Forget a request that nobody waits for any more, between two steps; its blocks are free at once."""
        if request in self.scheduler.waiting or request in self.scheduler.running:
            self.scheduler.release(request)
            self.cancelled += 1

    def recover(self) -> tuple[Request, ...]:
        """After a step that raised: give up whom it was at work for, and compute everybody else's KV anew.

        Returns who was given up: those of a batch that could not be told apart, or the one whose own part raised.
        """
        at_fault = self.working or tuple(self.scheduler.running)
        self.working = ()
        for request in at_fault:
            request.stopped = True
            if request in self.scheduler.running or request in self.scheduler.waiting:
                self.scheduler.release(request)
        # What the step left half done is not trusted.
        self.scheduler.restart(self.knobs, recompute=True)
        return at_fault

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running)

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Schedule, run, settle; returns the requests that ended in it."""
        started = perf_counter()
        plan = self.scheduler.schedule(monotonic())
        landed = self.runner.run(plan)
        ended = [request for request in self.scheduler.running if request.finished]
        for request in ended:
            if self.probe is not None:
                self.probe.finished(self, request)
            self.scheduler.release(request)
        if self.probe is not None:
            self.probe.step(self, plan, landed, perf_counter() - started)
        return ended

    def set_knobs(self, changes: Mapping[str, str], longest: int = 0) -> Knobs:
        """Change live settings between two steps; ValueError and no change when one of them is wrong, or the pool would
        not hold every request there is and one of ``longest`` tokens.
        """
        self.runner.land()
        new = self.knobs.with_text(changes)
        check_knobs(new, self.device)
        reconfigure(self, new, longest)
        if self.probe is not None:
            self.probe.changed()
        return self.knobs

    @property
    def compiles(self) -> tuple[int, float]:
        """Graphs captured and kernels compiled for shapes not met, and the seconds that took, since the start."""
        return self.runner.compiles

    def accept(self, requests: list[Request], chosen: list[int], logits: Tensor) -> None:
        """Append one token to each request and judge it where the right one is known."""
        now = monotonic()
        if self.judge is not None:
            self.judge.tokens(requests, logits)
        working = self.working
        for request, token in zip(requests, chosen, strict=True):
            self.working = (request,)
            if request.check is not None:
                right = request.check(request.newest, token)
                self.tokens_checked += 1
                self.tokens_right += right
                if len(request.turns) > FIRST_TURN:
                    self.later_checked += 1
                    self.later_right += right
            request.accept(token, now)
        self.working = working
        self.tokens_generated += len(requests)

    def age(self, requests: list[Request]) -> None:
        """Blocks that left the recent window of the request that wrote them take the policy's cold form."""
        if not self.residency.policy.SPARSE:
            return
        tokens = self.cache.geometry.block_tokens
        for request in requests:
            behind = max(0, request.length - 1 - self.knobs.window_tokens) // tokens
            if behind > request.placed:
                self.residency.age(request.block_table, request.placed, behind, request.turns)
                request.placed = behind
