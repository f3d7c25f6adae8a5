"""What comes back from a step: tokens to requests, reads to counters, time to phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.devices._base import Landed, Reader
from engine.devices._step import Watch
from engine.sampler import choose
from engine.timeline import Clock, Timeline

if TYPE_CHECKING:
    from engine.llm import Engine
    from engine.request import Request


@dataclass
class Flight:
    """A step that was launched: whose, where its results will be, and when the device has passed it."""

    requests: list[Request]
    lens: list[int]
    chosen: Tensor | None
    """Each row's token, where the device chose it: on its way to the host."""
    counts: Tensor
    reader: Reader
    logits: Tensor
    start: Any
    end: Any
    timeline: Timeline | None
    watch: Watch | None


class Landing:
    """Takes flights in. ``landed``: of those taken in since `begin`; ``shares`` of phases, in the last timed step."""

    def __init__(self, engine: Engine, clock: Clock, windows: tuple[int, ...]) -> None:
        self.engine, self.windows, self._clock = engine, windows, clock
        self.shares: dict[str, float] = {}
        self.landed = Landed()

    def begin(self) -> Landed:
        """Count from nothing."""
        self.landed = Landed()
        return self.landed

    def at_once(self, flight: Flight) -> bool:
        """Whether the host must have a step's results before it can launch the next."""
        judged = flight.chosen is None or self.engine.judge is not None
        return judged or flight.watch is not None or any(one.numbers is not None for one in flight.requests)

    def take_in(self, flight: Flight) -> None:
        """Wait for a step, give its tokens to those who still want them, and book where its time went."""
        self._clock.reach(flight.end)
        engine, rows, timeline = self.engine, len(flight.requests), flight.timeline
        if flight.chosen is None or self.at_once(flight):
            logits = flight.logits[:rows].float().cpu()
            chosen = choose(logits, flight.requests)
        else:
            logits, chosen = flight.logits, flight.chosen[:rows].tolist()
        if flight.chosen is None and timeline is not None:
            timeline.mark("sample")
        wanted = {*map(id, engine.scheduler.running), *map(id, engine.scheduler.waiting)}
        for request in flight.requests:
            request.ahead -= 1
        live = [row for row, one in enumerate(flight.requests) if id(one) in wanted and not one.finished]
        engine.accept([flight.requests[i] for i in live], [chosen[i] for i in live], logits)
        if flight.chosen is None and timeline is not None:
            timeline.mark("host")
        if flight.watch is not None:
            self._watched(flight.watch)
            if flight.chosen is None and timeline is not None:
                timeline.mark("transfer")
        self._count(flight)
        self._time(flight)

    def _watched(self, watch: Watch) -> None:
        """What the host learnt in the middle of the step: who was looked at, what was chosen, what may leave."""
        engine = self.engine
        if watch.table is not None and watch.mass:
            mass = torch.stack(watch.mass).cpu()
            engine.residency.importance[:, watch.table[: mass.shape[1]]] += mass
        if engine.knobs.promote_after and len(watch.choices) == engine.config.layers:
            engine.promoter.after_step(watch.choices, engine.knobs)
        if engine.residency.tier is not None:
            engine.residency.tier.after_step(engine.knobs)

    def _time(self, flight: Flight) -> None:
        """What a queue did is between the flight's marks; where there is none, it is the timeline without the host."""
        landed, parts = self.landed, {} if flight.timeline is None else flight.timeline.seconds()
        spent = self._clock.seconds(flight.start, flight.end)
        if flight.chosen is None and parts:
            parts.pop("host", None)
            spent = sum(parts.values())
        if parts:
            total = sum(parts.values())
            self.shares = {phase: seconds / total for phase, seconds in parts.items()} if total > 0 else {}
            landed.timed += spent
        landed.decode += spent
        for phase, share in self.shares.items():
            landed.parts[phase] = landed.parts.get(phase, 0.0) + share * spent

    def _count(self, flight: Flight) -> None:
        found = flight.reader.traffics(flight.counts, self.windows, flight.lens)
        if self.landed.traffic is None:
            self.landed.traffic = found
        else:
            self.landed.traffic.add(found)
