"""Where a rank's time goes: seconds by name, from the host's clock or from pairs of CUDA events read later."""

from __future__ import annotations

from time import perf_counter

import torch

Mark = float | torch.cuda.Event | None


class Clock:
    """Does nothing until `on`: events and readings cost more than the kernels they would time."""

    def __init__(self, device: str = "cpu") -> None:
        self.on = False
        self._cuda = device != "cpu"
        self._spans: list[tuple[str, Mark, Mark]] = []

    def start(self) -> Mark:
        return self._now() if self.on else None

    def stop(self, started: Mark, name: str) -> None:
        if started is not None:
            self._spans.append((name, started, self._now()))

    def take(self) -> dict[str, list[float]]:
        """Seconds of every span since the last call, by name, in order; a GPU must have been waited for."""
        found: dict[str, list[float]] = {}
        for name, start, end in self._spans:
            if isinstance(start, float) and isinstance(end, float):
                seconds = end - start
            else:
                assert isinstance(start, torch.cuda.Event)
                assert isinstance(end, torch.cuda.Event)
                seconds = start.elapsed_time(end) / 1e3
            found.setdefault(name, []).append(seconds)
        self._spans = []
        return found

    def _now(self) -> Mark:
        if not self._cuda:
            return perf_counter()
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
