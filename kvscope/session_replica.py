"""One replica of a fleet, read as if it were alone: the same screens, over its own series."""

from __future__ import annotations

from kvscope.signals.replicas import OneReplica
from kvscope.store import Segment, Store


class Alone(OneReplica):
    """``OneReplica`` with what a screen needs beside series: the stream's span, its segments, a memory of its own."""

    def __init__(self, store: Store, replica: str) -> None:
        super().__init__(store, replica)
        self._answers: dict[object, object] = {}
        self._newest = 0.0

    @property
    def span(self) -> tuple[float, float] | None:
        return self._whole.span

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._whole.segments

    def memo(self, segment: Segment | None = None) -> dict[object, object]:
        """Answers until the next sample."""
        newest = self.span[1] if self.span else 0.0
        if newest != self._newest:
            self._newest = newest
            self._answers.clear()
        return self._answers
