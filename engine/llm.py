"""The engine: one step is schedule, run, settle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine import kernels, window
from engine.build import check_knobs, make_cache
from engine.cache import KVCache
from engine.decode import DecodeAttend
from engine.devices import runner_for
from engine.devices._base import Device, Traffics
from engine.kernels import block
from engine.kernels._base import Kernels, Phases
from engine.kernels._paired import Paired
from engine.knobs import Knobs
from engine.model import Decoder, ModelConfig
from engine.observer import Observer
from engine.prefill import PrefillAttend
from engine.reconfigure import reconfigure
from engine.request import Check, Listener, Request
from engine.residency import Residency
from engine.sampler import GREEDY, Sampling, choose
from engine.scheduler import Scheduler
from engine.tiers import Promoter

if TYPE_CHECKING:
    from engine.instruments import Instruments
    from engine.judge import Judge


FIRST_TURN = 2
"""Turns of a conversation that has one answer: the system prompt and a question."""


@dataclass(slots=True)
class StepTimes:
    """Seconds of one step by what they were spent on; decode parts are disjoint, prefill is whole."""

    step: float = 0.0
    prefill: float = 0.0
    prefill_decompress: float = 0.0
    host: float = 0.0
    linear: float = 0.0
    transfer: float = 0.0
    sample: float = 0.0


class Engine:
    """A model, its KV and its requests. ``probe`` is None when nothing observes; nothing is measured for it then."""

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
        self.config, self.model, self.knobs, self.device = config, model, knobs, device
        self.pool_bytes, self.block_tokens = pool_bytes, block_tokens
        self.cache = make_cache(config, knobs, pool_bytes, block_tokens, device)
        self.residency = Residency(self.cache, knobs)
        self.scheduler = Scheduler(self.cache, self.residency, knobs, max_context)
        self.promoter, self.observer = Promoter(self.residency), Observer(self.residency)
        self.finished: list[Request] = []
        self.probe: Instruments | None = None
        self.judge: Judge | None = None
        self.tokens_generated = self.tokens_right = self.tokens_checked = 0
        self.later_right = self.later_checked = self.cancelled = 0
        self._next_id = 0
        self.working: tuple[Request, ...] = ()
        """Whom the step is at work for: who is at fault when it raises."""
        self._kernels: dict[tuple[str, str], Kernels] = {}
        self._capturing: list[Any] = []
        self.runner = runner_for(self)

    def take(self, cache: KVCache) -> None:
        """Work with this cache from now on; nothing may be held of the old one. Counters go on."""
        self.cache = cache
        self.residency.take(cache)
        self.scheduler.take(cache, self.residency)
        self.promoter.take(self.residency)

    def warm_up(self) -> None:
        """Compile what compiles at first use, so that no compilation lands in a measurement."""
        if self.runner is not None:
            self.runner.warm_up()
        else:
            block.warm_up(self.cache.geometry)

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
        """Run one step; returns the requests that ended in it."""
        times, started = StepTimes(), perf_counter()
        phases = Phases() if self.probe is not None else None
        plan = self.scheduler.schedule(monotonic())
        times.host += perf_counter() - started
        for request, start, end in plan.prefill:
            self.working = (request,)
            self._prefill(request, start, end, times)
        self.working = tuple(plan.decode)
        attend: DecodeAttend | Traffics | None = None
        if self.runner is not None:
            attend = self.runner.decode(plan.decode, times, phases)
        elif plan.decode:
            attend = self._decode(plan.decode, times, phases)
        self.working = ()
        settling = perf_counter()
        ended = [request for request in self.scheduler.running if request.finished]
        for request in ended:
            if self.probe is not None:
                self.probe.finished(self, request)
            self.scheduler.release(request)
        times.host += perf_counter() - settling
        times.step = perf_counter() - started
        if self.runner is not None:
            # The host works beside the device: what it adds to a step is what the device did not fill.
            times.host = max(0.0, times.step - times.prefill - self.runner.device_s)
        if self.probe is not None and phases is not None:
            self.probe.step(self, plan, times, phases, attend)
        return ended

    def set_knobs(self, changes: Mapping[str, str], longest: int = 0) -> Knobs:
        """Change live settings between two steps; ValueError and no change when one of them is wrong, or the pool would
        not hold every request there is and one of ``longest`` tokens.
        """
        if self.runner is not None:
            self.runner.land()
        new = self.knobs.with_text(changes)
        check_knobs(new, self.device)
        reconfigure(self, new, longest)
        return self.knobs

    def _prefill(self, request: Request, start: int, end: int, times: StepTimes) -> None:
        began, phases = perf_counter(), Phases()
        logits = self._prompt(request, start, end, phases)
        if logits is not None:
            self.scheduler.computed(request)
            self.accept([request], choose(logits, [request]), logits)
        times.prefill += perf_counter() - began
        times.prefill_decompress += phases.decompress

    def _prompt(self, request: Request, start: int, end: int, phases: Phases) -> Tensor | None:
        """Compute tokens [start, end); the logits [1, vocab] of the last one if nothing is left to compute."""
        blind = self.knobs.importance == "blind"
        sample_end = len(request.keys) * self.cache.geometry.block_tokens if blind else request.length
        span, windows = (start, end), self.config.windows
        if self.runner is not None:
            logits = self.runner.prefill(request, span, sample_end)
            request.computed = end
            return logits if end == request.length else None
        attend = PrefillAttend(self.cache, self.residency, request.block_table, span, sample_end, phases, windows)
        hidden = self.model(torch.tensor(request.tokens(start, end)), torch.arange(start, end), attend)
        request.computed = end
        self._forget(request)
        return self.model.logits(hidden[-1:]) if end == request.length else None

    def _forget(self, request: Request) -> None:
        window.forget(self.residency, self.config.windows, request, shared=self.knobs.prefix_cache == "on")

    def _decode(self, requests: list[Request], times: StepTimes, phases: Phases | None) -> DecodeAttend:
        began = perf_counter()
        policy = self.residency.policy
        keep = policy.keep(self.knobs, self.cache.geometry.block_tokens)
        attend = DecodeAttend(self.cache, self._operators(), keep, requests, phases, self.config.windows)
        attend.tier, attend.prefetch = self.residency.tier, self.knobs.prefetch
        if policy.DYNAMIC and self.knobs.importance == "aware":
            attend.observe(self.observer)
        tokens = torch.tensor([request.tokens(request.length - 1, request.length)[0] for request in requests])
        positions = torch.tensor([request.length - 1 for request in requests])
        forward = perf_counter()
        logits = self.model.logits(self.model(tokens, positions, attend))
        sampling = perf_counter()
        chosen = choose(logits, requests)
        settling = perf_counter()
        for request in requests:
            request.computed = request.length
        self.accept(requests, chosen, logits)
        moving = perf_counter()
        self.age(requests)
        for request in requests:
            self._forget(request)
        if self.knobs.promote_after and attend.choices:
            self.promoter.after_step(attend.choices, self.knobs)
        if self.residency.tier is not None:
            self.residency.tier.after_step(self.knobs)
        ended = perf_counter()
        # What the attention call spent beyond its own phases is storing KV and preparing arguments: host work.
        inside = phases.total if phases is not None else 0.0
        times.host += (forward - began) + (moving - settling) + (attend.seconds - inside)
        times.linear += (sampling - forward) - attend.seconds
        times.sample += settling - sampling
        times.transfer += ended - moving
        return attend

    @property
    def compiles(self) -> tuple[int, float]:
        """Graphs that kernels captured for shapes they had not met, and the seconds that took, since the start."""
        if self.runner is not None:
            return self.runner.compiles
        made = self._capturing
        return sum([one.compiles for one in made]), sum([one.compile_s for one in made])

    def _operators(self) -> Kernels:
        """What the knobs ask for; with ``selector`` one of them chooses and another reads."""
        selector, name = self.knobs.operators
        if (name, selector) not in self._kernels:
            made = kernels.get(name)
            if name != selector:
                made = Paired(kernels.get(selector), made)
            self._kernels[name, selector] = made
            self._capturing += [made] if hasattr(made, "compiles") else []
        return self._kernels[name, selector]

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
