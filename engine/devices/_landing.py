"""What comes back from a step on a device: tokens to requests, reads to counters, time to phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine import forms
from engine.devices._base import Traffics
from engine.devices._clock import Clock, Timeline
from engine.devices._modes import Modes
from engine.devices._step import Watch, pages_read
from engine.sampler import choose

if TYPE_CHECKING:
    from engine.kernels._base import Phases
    from engine.llm import Engine, StepTimes
    from engine.request import Request


@dataclass
class Flight:
    """A step that was launched: whose, where its results will be, and when the device has passed it."""

    requests: list[Request]
    lens: list[int]
    results: Tensor
    logits: Tensor
    start: Any
    end: Any
    forms: tuple[str, ...]
    timeline: Timeline | None
    watch: Watch | None


def fetched(results: Tensor) -> Tensor:
    """The results on their way to the host."""
    if results.device.type != "cuda":
        return results.cpu()
    landed = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
    landed.copy_(results, non_blocking=True)
    return landed


class Landing:
    """Takes flights in. ``traffic`` and ``device_s``: what the steps taken in since `begin` read, and their seconds;
    ``shares``: of its phases, in the last step that was timed by phase.
    """

    def __init__(self, engine: Engine, clock: Clock, modes: Modes) -> None:
        self.engine, self._clock, self._modes = engine, clock, modes
        self.shares: dict[str, float] = {}
        self.begin()

    def begin(self) -> None:
        """Count from nothing."""
        self.traffic: Traffics | None = None
        self.device_s = 0.0

    def at_once(self, flight: Flight) -> bool:
        """Whether the host must have a step's results before it can launch the next."""
        judged = self.engine.judge is not None
        return judged or flight.watch is not None or any(one.numbers is not None for one in flight.requests)

    def take_in(self, flight: Flight, times: StepTimes | None, phases: Phases | None) -> None:
        """Wait for a step, give its tokens to those who still want them, and book where its time went."""
        self._clock.reach(flight.end)
        engine, rows = self.engine, len(flight.requests)
        self._time(flight, times, phases)
        columns = 1 + len(flight.forms)
        width = len(flight.results) - columns * engine.config.layers
        self._count(flight, flight.results[width:].view(-1, columns))
        chosen = flight.results[:rows].tolist()
        wanted = {*map(id, engine.scheduler.running), *map(id, engine.scheduler.waiting)}
        for request in flight.requests:
            request.ahead -= 1
        live = [row for row, one in enumerate(flight.requests) if id(one) in wanted and not one.finished]
        logits = flight.logits
        if self.at_once(flight):
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
        spent = self._clock.seconds(flight.start, flight.end)
        self.device_s += spent
        if flight.timeline is not None:
            self.shares = flight.timeline.shares()
        if times is None or phases is None:
            return
        for phase, share in self.shares.items():
            if phase in ("linear", "sample"):
                setattr(times, phase, getattr(times, phase) + share * spent)
            else:
                setattr(phases, phase, getattr(phases, phase) + share * spent)

    def _count(self, flight: Flight, counts: Tensor) -> None:
        shape = self.engine.cache.geometry
        entries = [forms.get(name).entries(shape) for name in flight.forms]
        found = pages_read(counts, entries, self._modes.windows, flight.lens, shape.block_tokens, shape.kv_heads)
        if self.traffic is None:
            self.traffic = found
            return
        for mine, more in ((self.traffic.hot, found.hot), (self.traffic.cold, found.cold)):
            mine[:] = [a + b for a, b in zip(mine, more, strict=True)]
        self.traffic.read = [a + b for a, b in zip(self.traffic.read, found.read, strict=True)]
        self.traffic.total = [a + b for a, b in zip(self.traffic.total, found.total, strict=True)]
