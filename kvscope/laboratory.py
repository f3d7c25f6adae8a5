"""A running built-in engine under watch: stretches of so many steps, knobs turned between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kvscope.errors import NotEnoughData, SourceError
from kvscope.sources.source import Source
from kvscope.store import Segment, Store

POLL_S = 0.25


class Control(Protocol):
    """What turns the knobs of the engine that is watched."""

    def set(self, knobs: Mapping[str, str], mark: str = "") -> dict[str, str]: ...

    def mark(self, name: str) -> None: ...

    def knobs(self) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class Length:
    """How long to look: until ``steps`` were made, but ``least_s`` in any case and ``most_s`` at the longest."""

    steps: int
    least_s: float
    most_s: float

    def over(self, steps: float, seconds: float) -> bool:
        """Whether a stretch of so many steps and seconds is long enough."""
        return seconds >= self.most_s or (steps >= self.steps and seconds >= self.least_s)


@dataclass(slots=True)
class Laboratory:
    """Feeds ``store`` from ``source`` while it waits; ``tell`` hears what is being done."""

    source: Source
    control: Control
    store: Store = field(default_factory=Store)
    tell: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def poll(self) -> None:
        """Take in what is new; SourceError when the engine has ended."""
        poll = self.source.poll()
        for mark in poll.marks:
            self.store.mark(mark)
        self.store.add(poll.samples)
        if poll.ended:
            raise SourceError(f"{self.source.describe().target}: the engine ended during the experiment")

    def stretch(self, name: str, length: Length, knobs: Mapping[str, str] | None = None) -> Segment:
        """Start a segment (with ``knobs`` set, if any) and watch it; NotEnoughData when not a sample came."""
        if knobs:
            self.control.set(knobs, name)
        else:
            self.control.mark(name)
        self._wait(name, length.over)
        return self._segment(name)

    def longer(self, segment: Segment, length: Length) -> Segment:
        """Watch on in the segment that was begun last."""
        self._wait(segment.name, length.over)
        return self._segment(segment.name)

    def settle(self, name: str, length: Length, requests: int) -> None:
        """Wait until so many requests ended since now: what the old settings started has left by then."""
        ended = self.count("requests.finished")

        def over(steps: float, seconds: float) -> bool:
            left = self.count("requests.finished") >= ended + requests
            return seconds >= length.most_s or (left and length.over(steps, seconds))

        self._wait(name, over)

    def count(self, metric: str) -> float:
        """A counter's newest value, 0 before the first."""
        return self.store.latest(metric) or 0.0

    def _wait(self, name: str, over: Callable[[float, float], bool]) -> None:
        self.poll()
        began, first = self.clock(), self.count("batch.steps")
        while not over(self.count("batch.steps") - first, seconds := self.clock() - began):
            self.tell(f"{name} … {seconds:.0f} s")
            self.sleep(POLL_S)
            self.poll()

    def _segment(self, name: str) -> Segment:
        for segment in reversed(self.store.segments):
            if segment.name == name:
                return segment
        raise NotEnoughData(f"{self.source.describe().target}: no sample of {name}; expected a working engine")
