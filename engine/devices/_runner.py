"""Runs the engine's steps on a device: prompts in chunks, decode by graph, and one step ahead of the host.

A decode step is launched before the tokens of the one before it have come back: the device passes them on itself, and
the host counts them meanwhile. So the device never waits for the host, unless a choice of the host's lies between
(sampling, pages in host memory, a first token). Every 64th step runs without a graph, with a mark after each phase;
the steps between are timed as a whole, and their phases are taken to have its shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.devices._base import TIMED_EVERY, Batch, Device, Traffics
from engine.devices._cache import DeviceCache
from engine.devices._clock import Clock, Timeline
from engine.devices._landing import Flight, Landing, fetched
from engine.devices._link import send
from engine.devices._modes import Modes
from engine.devices._prefill import ChunkAttend, warm
from engine.devices._step import Mode, StepAttend, Watch, tokens_of
from engine.kernels._cuda.graph import BUCKETS, bucket_for

if TYPE_CHECKING:
    from engine.kernels._base import Phases
    from engine.llm import Engine, StepTimes
    from engine.request import Request

SLOTS = 4096


class Runner:
    """One engine's steps. ``device_s``: seconds the device spent on decode, of what the last call took in."""

    def __init__(self, engine: Engine, device: Device) -> None:
        self.engine, self.device = engine, device
        self.clock = Clock(device.device)
        self.modes = Modes(engine, device)
        self.last = torch.zeros(SLOTS, dtype=torch.int64, device=device.device)
        self._landing = Landing(engine, self.clock, self.modes)
        self._flying: Flight | None = None
        self._steps = 0

    @property
    def cache(self) -> DeviceCache:
        assert isinstance(self.engine.cache, DeviceCache)
        return self.engine.cache

    @property
    def compiles(self) -> tuple[int, float]:
        """Graphs captured and kernels compiled so far, and the seconds that captures took."""
        return self.modes.compiles

    @property
    def device_s(self) -> float:
        return self._landing.device_s

    @property
    def shares(self) -> dict[str, float]:
        """Of each phase, in the last decode step that was timed by phase."""
        return self._landing.shares

    def warm_up(self) -> None:
        """Compile and capture what the present settings will run, for every batch size they allow."""
        mode = self.modes.now()
        if not self.device.graphs:
            return
        warm(self.cache, mode.forms)
        if not mode.careful:
            for bucket in BUCKETS:
                if bucket <= bucket_for(min(self.engine.knobs.max_running, BUCKETS[-1])):
                    self._captured(mode, self.modes.batch(bucket))
        self.clock.wait()

    def prefill(self, request: Request, span: tuple[int, int], sample_end: int) -> Tensor:
        """Compute tokens [start, end) of a request; the logits of the last one, on the host."""
        engine, (start, end) = self.engine, span
        self.land()
        attend = ChunkAttend(self.cache, engine.residency, request.block_table, span, sample_end, engine.config.windows)
        tokens, positions = torch.tensor(request.tokens(start, end)), torch.arange(start, end)
        where = self.device.device
        hidden = engine.model(send(tokens, where), send(positions, where), attend)
        attend.settle()
        return engine.model.logits(hidden[-1:]).float().cpu()

    def decode(self, requests: list[Request], times: StepTimes, phases: Phases | None) -> Traffics | None:
        """Launch a step for these requests and take in the one before; what the steps taken in have read."""
        self._landing.begin()
        before, self._flying = self._flying, None
        if requests:
            if before is not None and not self._may_follow(requests):
                self._landing.take_in(before, times, phases)
                before = None
            self._flying = self._launch(requests, before)
        if before is not None:
            self._landing.take_in(before, times, phases)
        if self._flying is not None and self._landing.at_once(self._flying):
            flight, self._flying = self._flying, None
            self._landing.take_in(flight, times, phases)
        return self._landing.traffic

    def land(self) -> None:
        """Take in what is under way, now."""
        flight, self._flying = self._flying, None
        if flight is not None:
            self._landing.take_in(flight, None, None)

    def _may_follow(self, requests: Sequence[Request]) -> bool:
        """Whether a step can start before the tokens of the one before are known to the host."""
        mode = self.modes.now()
        return not mode.careful and (not self.device.graphs or self.modes.has(mode, len(requests)))

    def _launch(self, requests: list[Request], before: Flight | None) -> Flight:
        engine, mode = self.engine, self.modes.now()
        timed = self._steps % TIMED_EVERY == 0 and engine.probe is not None
        self._steps += 1
        watch = self._watch(mode, requests)
        batch = self.modes.batch(self.modes.rows(len(requests)))
        graph = self.device.graphs and len(requests) <= BUCKETS[-1] and not timed and watch is None
        replay = self._captured(mode, batch) if graph else None
        lens = [request.length for request in requests]
        self.cache.sync()
        self.modes.fill(batch, mode, requests, before.requests if before is not None else [])
        start = self.clock.mark()
        timeline = Timeline(self.clock) if timed and replay is None else None
        logits, results = replay() if replay is not None else self._run(mode, batch, timeline, watch)
        landed = fetched(results)
        end = self.clock.mark()
        for request, length in zip(requests, lens, strict=True):
            request.computed = length
            request.ahead += 1
        self._book(requests, lens)
        engine.age(requests)
        return Flight(requests, lens, landed, logits, start, end, mode.forms, timeline, watch)

    def _book(self, requests: list[Request], lens: list[int]) -> None:
        """The step's rows count as stored: whatever reads or moves them is queued behind it."""
        tokens = self.cache.geometry.block_tokens
        last = torch.tensor(lens) - 1
        ids = [one.block_table[n // tokens] for one, n in zip(requests, last.tolist(), strict=True)]
        self.cache.wrote(torch.tensor(ids).numpy(), (last % tokens).numpy())

    def _watch(self, mode: Mode, requests: Sequence[Request]) -> Watch | None:
        engine = self.engine
        row = None
        if engine.residency.policy.DYNAMIC and engine.knobs.importance == "aware":
            row = engine.observer.next_row(len(requests))
        if row is None and not mode.careful:
            return None
        length = requests[row].length if row is not None else 0
        return Watch(engine.residency.tier, self.modes.wider(mode, self.modes.rows(len(requests))), row, length)

    def _run(self, mode: Mode, batch: Batch, timeline: Timeline | None, watch: Watch | None) -> tuple[Tensor, Tensor]:
        """The step itself: logits [rows, vocabulary]; chosen tokens, then pages read by layer, int64."""
        engine, reader = self.engine, self.modes.reader(mode, batch)
        mark = timeline.mark if timeline is not None else None
        attend = StepAttend(self.cache, batch, reader, mode.forms, self.modes.windows, mark, watch)
        tokens, positions = tokens_of(batch, self.last)
        logits = engine.model.logits(engine.model(tokens, positions, attend))
        if mark is not None:
            mark("linear")
        chosen = logits.argmax(-1)
        self.last[: batch.requests].copy_(chosen)
        results = torch.cat((chosen, reader.counts().flatten().long()))
        if mark is not None:
            mark("sample")
        return logits, results

    def _captured(self, mode: Mode, batch: Batch) -> Any:
        """The graph of a step; capturing runs it on a batch of no tokens first, and needs the device to itself."""

        def ready() -> None:
            self.land()
            batch.numbers.zero_()

        return self.modes.graph(mode, batch, ready, lambda: self._run(mode, batch, None, None))
