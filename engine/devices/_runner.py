"""Runs the engine's steps on a device: prompts in chunks, decode by graph, and one step ahead of the host.

A decode step is launched before the tokens of the one before it have come back: the device passes them on itself, and
the host counts them meanwhile. So the device never waits for the host, unless a choice of the host's lies between
(sampling, pages in host memory, a first token). Every 64th step runs without a graph, with a mark after each phase;
the steps between are timed as a whole, and their phases are taken to have its shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.devices._base import TIMED_EVERY, Batch, Device, Traffics
from engine.devices._cache import DeviceCache
from engine.devices._clock import Clock, Timeline
from engine.devices._link import send
from engine.devices._modes import Modes
from engine.devices._prefill import ChunkAttend
from engine.devices._step import Mode, StepAttend, Watch, pages_read, tokens_of
from engine.kernels._cuda.graph import BUCKETS, bucket_for
from engine.sampler import choose

if TYPE_CHECKING:
    from engine.kernels._base import Phases
    from engine.llm import Engine, StepTimes
    from engine.request import Request

SLOTS = 4096


@dataclass
class Flight:
    """A step that was launched: whose, where its results will be, and when the device has passed it."""

    requests: list[Request]
    lens: list[int]
    results: Tensor
    logits: Tensor
    start: Any
    end: Any
    timeline: Timeline | None
    watch: Watch | None


class Runner:
    """One engine's steps. ``device_s``: seconds the device spent on decode, of what the last call took in."""

    def __init__(self, engine: Engine, device: Device) -> None:
        self.engine, self.device = engine, device
        self.clock = Clock(device.device)
        self.modes = Modes(engine, device)
        self.last = torch.zeros(SLOTS, dtype=torch.int64, device=device.device)
        self.device_s = 0.0
        self._flying: Flight | None = None
        self._shares: dict[str, float] = {}
        self._steps = 0
        self._traffic: Traffics | None = None

    @property
    def cache(self) -> DeviceCache:
        assert isinstance(self.engine.cache, DeviceCache)
        return self.engine.cache

    @property
    def compiles(self) -> tuple[int, float]:
        """Graphs captured and kernels compiled so far, and the seconds that captures took."""
        return self.modes.compiles

    def warm_up(self) -> None:
        """Compile and capture what the present settings will run, for every batch size they allow."""
        mode = self.modes.now()
        if not self.device.graphs:
            return
        self._warm_prefill(mode)
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
        self._traffic, self.device_s = None, 0.0
        before, self._flying = self._flying, None
        if requests:
            if before is not None and not self._may_follow(requests):
                self._take_in(before, times, phases)
                before = None
            self._flying = self._launch(requests, before)
        if before is not None:
            self._take_in(before, times, phases)
        if self._flying is not None and self._must_land(self._flying):
            flight, self._flying = self._flying, None
            self._take_in(flight, times, phases)
        return self._traffic

    def land(self) -> None:
        """Take in what is under way, now."""
        flight, self._flying = self._flying, None
        if flight is not None:
            self._take_in(flight, None, None)

    def _may_follow(self, requests: Sequence[Request]) -> bool:
        """Whether a step can start before the tokens of the one before are known to the host."""
        mode = self.modes.now()
        return not mode.careful and (not self.device.graphs or self.modes.has(mode, len(requests)))

    def _must_land(self, flight: Flight) -> bool:
        judged = self.engine.judge is not None
        return judged or flight.watch is not None or any(one.numbers is not None for one in flight.requests)

    def _launch(self, requests: list[Request], before: Flight | None) -> Flight:
        engine, mode = self.engine, self.modes.now()
        timed = self._steps % TIMED_EVERY == 0 and engine.probe is not None
        self._steps += 1
        watch = self._watch(mode, requests)
        batch = self.modes.batch(self._rows(len(requests)))
        graph = self.device.graphs and len(requests) <= BUCKETS[-1] and not timed and watch is None
        replay = self._captured(mode, batch) if graph else None
        lens = [request.length for request in requests]
        self.cache.sync()
        self.modes.fill(batch, mode, requests, before.requests if before is not None else [])
        start = self.clock.mark()
        timeline = Timeline(self.clock) if timed and replay is None else None
        logits, results = replay() if replay is not None else self._run(mode, batch, timeline, watch)
        landed = self._fetched(results)
        end = self.clock.mark()
        for request, length in zip(requests, lens, strict=True):
            request.computed = length
            request.ahead += 1
        self._book(requests, lens)
        engine.age(requests)
        return Flight(requests, lens, landed, logits, start, end, timeline, watch)

    def _rows(self, requests: int) -> int:
        """Rows of the batch: a bucket's where there are graphs."""
        return bucket_for(requests) if self.device.graphs and requests <= BUCKETS[-1] else requests

    def _fetched(self, results: Tensor) -> Tensor:
        """The results on their way to the host."""
        if results.device.type != "cuda":
            return results.cpu()
        landed = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
        landed.copy_(results, non_blocking=True)
        return landed

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
        return Watch(engine.residency.tier, self.modes.wider(mode, self._rows(len(requests))), row, length)

    def _run(self, mode: Mode, batch: Batch, timeline: Timeline | None, watch: Watch | None) -> tuple[Tensor, Tensor]:
        """The step itself: logits [rows, vocabulary]; chosen tokens, then pages read by layer, int64."""
        engine, reader = self.engine, self.modes.reader(mode, batch)
        mark = timeline.mark if timeline is not None else None
        attend = StepAttend(self.cache, batch, reader, mode.cold, self.modes.windows, mark, watch)
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

    def _warm_prefill(self, mode: Mode) -> None:
        cache, where = self.cache, self.device.device
        shape, operators = cache.geometry, cache.operators
        table = torch.zeros(1, dtype=torch.int32, device=where)
        q = torch.zeros(1, shape.q_heads, shape.head_dim, dtype=cache.dtype, device=where)
        cache.sync()
        for pools in (cache.pools[False], *([cache.pools[True]] if mode.cold else [])):
            _, mass_at = operators.chunk(q, pools[0], table, 0, 0)
            operators.observe(q, mass_at, pools[0], table, 0, 1, 0)
        if mode.cold:
            operators.freeze(cache.pools[True][0], torch.zeros(1, dtype=torch.int64, device=where))

    def _take_in(self, flight: Flight, times: StepTimes | None, phases: Phases | None) -> None:
        """Wait for a step, give its tokens to those who still want them, and book where its time went."""
        self.clock.reach(flight.end)
        engine, rows = self.engine, len(flight.requests)
        self._time(flight, times, phases)
        width = len(flight.results) - 2 * engine.config.layers
        self._count(flight, flight.results[width:].view(-1, 2))
        chosen = flight.results[:rows].tolist()
        wanted = {*map(id, engine.scheduler.running), *map(id, engine.scheduler.waiting)}
        for request in flight.requests:
            request.ahead -= 1
        live = [row for row, one in enumerate(flight.requests) if id(one) in wanted and not one.finished]
        logits = flight.logits
        if self._must_land(flight):
            logits = logits[:rows].float().cpu()
            chosen = choose(logits, flight.requests)
        engine.accept([flight.requests[i] for i in live], [chosen[i] for i in live], logits)
        if flight.watch is not None:
            self._watched(flight, flight.watch)

    def _watched(self, flight: Flight, watch: Watch) -> None:
        """What the host learnt in the middle of the step: who was looked at, what was chosen, what may leave."""
        engine = self.engine
        if watch.row is not None and watch.mass:
            mass = torch.stack(watch.mass).cpu()
            table = flight.requests[watch.row].block_table[: mass.shape[1]]
            engine.residency.importance[:, torch.tensor(table, dtype=torch.int64)] += mass[:, : len(table)]
        if engine.knobs.promote_after and len(watch.choices) == engine.config.layers:
            engine.promoter.after_step(watch.choices, engine.knobs)
        if engine.residency.tier is not None:
            engine.residency.tier.after_step(engine.knobs)

    def _time(self, flight: Flight, times: StepTimes | None, phases: Phases | None) -> None:
        spent = self.clock.seconds(flight.start, flight.end)
        self.device_s += spent
        if flight.timeline is not None:
            self._shares = flight.timeline.shares()
        if times is None or phases is None:
            return
        for phase, share in self._shares.items():
            if phase in ("linear", "sample"):
                setattr(times, phase, getattr(times, phase) + share * spent)
            else:
                setattr(phases, phase, getattr(phases, phase) + share * spent)

    def _count(self, flight: Flight, counts: Tensor) -> None:
        shape = self.cache.geometry
        found = pages_read(counts, self.modes.windows, flight.lens, shape.block_tokens, shape.kv_heads)
        if self._traffic is None:
            self._traffic = found
            return
        for mine, more in ((self._traffic.hot, found.hot), (self._traffic.cold, found.cold)):
            mine[:] = [a + b for a, b in zip(mine, more, strict=True)]
        self._traffic.read = [a + b for a, b in zip(self._traffic.read, found.read, strict=True)]
        self._traffic.total = [a + b for a, b in zip(self._traffic.total, found.total, strict=True)]
