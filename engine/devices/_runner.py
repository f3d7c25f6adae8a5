"""Runs the engine's steps on a backend: prompts in chunks, decode by graph where there are any, and one step ahead of
the host where the device has a queue.

Such a decode step is launched before the tokens of the one before it have come back: the device passes them on itself,
and the host counts them meanwhile. So the device never waits for the host, unless a choice of the host's lies between
(sampling, pages in host memory, a first token). Of its steps every 64th runs without a graph, with a mark after each
phase; the steps between are timed as a whole. The CPU has no queue: every step lands at once and is timed by phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.devices._base import TIMED_EVERY, Batch, Device, Landed
from engine.devices._landing import Flight, Landing
from engine.devices._link import send
from engine.devices._modes import Modes
from engine.devices._prefill import ChunkAttend
from engine.devices._step import StepAttend, Watch, tokens_of
from engine.kernels._cuda.graph import BUCKETS, bucket_for
from engine.sampler import choose
from engine.timeline import Clock, Timeline

if TYPE_CHECKING:
    from engine.devices._base import Mode
    from engine.llm import Engine
    from engine.request import Request
    from engine.scheduler import Plan

SLOTS = 4096
OBSERVED_EVERY = 8
"""Steps between two looks at what a query attends to: each reads all of one request's keys, as no sparse step does."""


class Runner:
    """One engine's steps."""

    def __init__(self, engine: Engine, device: Device) -> None:
        self.engine, self.device = engine, device
        self.clock = Clock(device.device)
        self.modes = Modes(engine, device)
        self.last = torch.zeros(SLOTS, dtype=torch.int64, device=device.device)
        self._landing = Landing(engine, self.clock, self.modes.windows)
        self._flying: Flight | None = None
        self._steps = self._watched = 0
        self.timed_every = TIMED_EVERY if device.queued else 1
        """Decode steps from one that is timed by phase to the next."""

    @property
    def compiles(self) -> tuple[int, float]:
        """Graphs captured and kernels compiled so far, and the seconds that took."""
        return self.modes.compiles

    @property
    def device_s(self) -> float:
        """Seconds of decode on the device, of what the last call took in."""
        return self._landing.landed.decode

    @property
    def shares(self) -> dict[str, float]:
        """Of each phase, in the last decode step that was timed by phase."""
        return self._landing.shares

    def warm_up(self) -> None:
        """Compile and capture what the present settings will run, for every batch size they allow."""
        mode = self.modes.now()
        self.device.operators.warm_up(self.engine.cache, mode.forms)
        if self.device.graphs and not mode.careful:
            for bucket in BUCKETS:
                if bucket <= bucket_for(min(self.engine.knobs.max_running, BUCKETS[-1])):
                    self._captured(mode, self.modes.batch(bucket))
        self.clock.wait()

    def run(self, plan: Plan) -> Landed:
        """Prefill and decode what the plan says; what landed meanwhile."""
        landed = self._landing.begin()
        if plan.prefill:
            self.land()
        for request, start, end in plan.prefill:
            self.engine.working = (request,)
            self._prefill(request, start, end, landed)
        self.engine.working = tuple(plan.decode)
        self._decode(plan.decode)
        self.engine.working = ()
        return landed

    def land(self) -> None:
        """Take in what is under way, now."""
        flight, self._flying = self._flying, None
        if flight is not None:
            self._landing.take_in(flight)

    def _prefill(self, request: Request, start: int, end: int, landed: Landed) -> None:
        """Compute tokens [start, end) of a request, and its next token where nothing is left to compute."""
        began, engine, where = perf_counter(), self.engine, self.device.device
        timeline = None if self.device.queued else Timeline()
        blind = engine.knobs.importance == "blind"
        sample_end = len(request.keys) * engine.cache.geometry.block_tokens if blind else request.length
        attend = ChunkAttend(
            engine.residency, self.device.operators, request.block_table, (start, end), sample_end,
            engine.config.windows, None if timeline is None else timeline.mark,
        )  # fmt: skip
        tokens, positions = torch.tensor(request.tokens(start, end)), torch.arange(start, end)
        hidden = engine.model(send(tokens, where), send(positions, where), attend)
        attend.settle()
        request.computed = end
        self._forget(request)
        if end == request.length:
            logits = engine.model.logits(hidden[-1:]).float().cpu()
            engine.scheduler.computed(request)
            engine.accept([request], choose(logits, [request]), logits)
        landed.prefill += perf_counter() - began
        if timeline is not None:
            landed.prefill_decompress += timeline.seconds().get("decompress", 0.0)

    def _forget(self, request: Request) -> None:
        engine = self.engine
        engine.residency.forget(engine.config.windows, request, shared=engine.knobs.prefix_cache == "on")

    def _decode(self, requests: list[Request]) -> None:
        """Launch a step for these requests and take in the one before."""
        before, self._flying = self._flying, None
        if requests:
            if before is not None and not self._may_follow(requests):
                self._landing.take_in(before)
                before = None
            self._flying = self._launch(requests, before)
        if before is not None:
            self._landing.take_in(before)
        if self._flying is not None and self._landing.at_once(self._flying):
            self.land()

    def _may_follow(self, requests: Sequence[Request]) -> bool:
        """Whether a step can start before the tokens of the one before are known to the host."""
        mode = self.modes.now()
        return not mode.careful and (not self.device.graphs or self.modes.has(mode, len(requests)))

    def _launch(self, requests: list[Request], before: Flight | None) -> Flight:
        engine, mode = self.engine, self.modes.now()
        timed = self._steps % self.timed_every == 0 and engine.probe is not None
        self._steps += 1
        batch = self.modes.batch(self.modes.rows(len(requests)))
        watch = self._watch(mode, batch, requests)
        graph = self.device.graphs and len(requests) <= BUCKETS[-1] and not timed and watch is None
        replay = self._captured(mode, batch) if graph else None
        lens = [request.length for request in requests]
        engine.cache.sync()
        self.modes.fill(batch, mode, requests, before.requests if before is not None else [])
        start = self.clock.mark()
        timeline = Timeline(self.clock) if timed and replay is None else None
        logits, results = replay() if replay is not None else self._run(mode, batch, timeline, watch)
        results = fetched(results)
        end = self.clock.mark()
        for request, length in zip(requests, lens, strict=True):
            request.computed = length
            request.ahead += 1
        # The step's rows count as stored: whatever reads or moves them is queued behind it.
        engine.cache.wrote(batch.ids, batch.slots)
        engine.age(requests)
        for request in requests:
            self._forget(request)
        if timeline is not None and not self.device.queued:
            timeline.mark("transfer")
        rows = batch.requests if self.device.queued else 0
        chosen, counts = results[:rows] if rows else None, results[rows:]
        reader = self.modes.reader(mode, batch)
        return Flight(requests, lens, chosen, counts, reader, logits, start, end, timeline, watch)

    def _watch(self, mode: Mode, batch: Batch, requests: Sequence[Request]) -> Watch | None:
        engine = self.engine
        row = None
        if engine.residency.policy.DYNAMIC and engine.knobs.importance == "aware":
            self._watched += 1
            row = self._watched // OBSERVED_EVERY % len(requests) if self._watched % OBSERVED_EVERY == 0 else None
        if row is None and not mode.careful:
            return None
        watch = Watch(mode.careful, engine.residency.tier, self.modes.wider(mode, batch), row)
        if row is not None:
            watch.length = requests[row].length
            blocks = engine.cache.geometry.blocks_for(watch.length)
            watch.table = torch.tensor(requests[row].block_table[:blocks])
        return watch

    def _run(self, mode: Mode, batch: Batch, timeline: Timeline | None, watch: Watch | None) -> tuple[Tensor, Tensor]:
        """The step itself: logits [rows, vocabulary]; tokens where a queue chooses them, then what was read, int64."""
        engine, reader = self.engine, self.modes.reader(mode, batch)
        mark, pools = timeline.mark if timeline is not None else None, engine.cache.pools(mode.forms)
        windows = self.modes.windows
        if not self.device.queued:
            windows = tuple([window if window < batch.longest else 0 for window in windows])
        attend = StepAttend(engine.cache, self.device.operators, pools, batch, reader, windows, mark, watch)
        tokens, positions = tokens_of(batch, self.last)
        logits = engine.model.logits(engine.model(tokens, positions, attend))
        if mark is not None:
            mark("linear")
        results = reader.counts().flatten().long()
        if self.device.queued:
            chosen = logits.argmax(-1)
            self.last[: batch.requests].copy_(chosen)
            results = torch.cat((chosen, results))
            if mark is not None:
                mark("sample")
        return logits, results

    def _captured(self, mode: Mode, batch: Batch) -> Any:
        """The graph of a step; capturing runs it on a batch of no tokens first, and needs the device to itself."""

        def ready() -> None:
            self.land()
            batch.numbers.zero_()

        return self.modes.graph(mode, batch, ready, lambda: self._run(mode, batch, None, None))


def fetched(results: Tensor) -> Tensor:
    """The results on their way to the host."""
    if results.device.type != "cuda":
        return results.cpu()
    landed = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
    landed.copy_(results, non_blocking=True)
    return landed
