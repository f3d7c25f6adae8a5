"""Where the time of a step goes: points in a device's queue, read only once the device has passed them.

There is one timeline, whatever computes: the CPU's points are readings of the host's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

Mark = Callable[[str], None]
"""Called with the name of the phase that ended just now."""


class Clock:
    """Marks points by the device's own events, as every torch device has them; by the host's clock where it has none.

    On a device without events a mark waits for it, so that what is measured is at least what ran.
    """

    def __init__(self, device: torch.device) -> None:
        self._module: Any = getattr(torch, device.type, None)
        self._events = device.type != "cpu" and hasattr(self._module, "Event")
        self._waits = device.type != "cpu" and hasattr(self._module, "synchronize")

    def mark(self) -> Any:
        """A point in the device's queue."""
        if not self._events:
            self.wait()
            return perf_counter()
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Between two marks that the device has passed."""
        if not self._events:
            return float(end - start)
        return float(start.elapsed_time(end)) / 1e3

    def reach(self, mark: Any) -> None:
        """Wait until the device has passed a mark."""
        if self._events:
            mark.synchronize()

    def wait(self) -> None:
        """Wait for everything that is queued."""
        if self._waits:
            self._module.synchronize()


HOST = Clock(torch.device("cpu"))


class Timeline:
    """Phases of one step, each from the mark before it to its own."""

    def __init__(self, clock: Clock = HOST) -> None:
        self._clock, self._marks = clock, [("", clock.mark())]

    def mark(self, phase: str) -> None:
        """The phase ended here."""
        self._marks.append((phase, self._clock.mark()))

    def seconds(self) -> dict[str, float]:
        """By phase; the device must have passed the last mark."""
        spent: dict[str, float] = {}
        for (_, start), (phase, end) in zip(self._marks, self._marks[1:], strict=False):
            spent[phase] = spent.get(phase, 0.0) + self._clock.seconds(start, end)
        return spent
