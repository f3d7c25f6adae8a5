"""Which segment is current and which is the baseline: as chosen, else the newest one long enough to judge by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nextafter

from kvscope.store import Segment, Store

SHORTEST_BASELINE_S = 5.0
_LIVE_S = 60.0


@dataclass(slots=True)
class Comparison:
    """The two segments on screen."""

    store: Store
    clock: Callable[[], float]
    chosen: str = ""
    until_s: float | None = None
    """The moment on screen; what came later is not seen. None: everything is."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Segments as they were at the moment on screen."""
        until = self.until_s
        if until is None:
            return self.store.segments
        end = nextafter(until, inf)
        return tuple(replace(one, end_s=min(one.end_s, end)) for one in self.store.segments if one.start_s <= until)

    @property
    def current(self) -> Segment | None:
        """The open segment."""
        segments = self.segments
        return segments[-1] if segments else None

    @property
    def earlier(self) -> Segment | None:
        """The newest segment before the current one that is long enough to compare with."""
        long = [one for one in self.segments[:-1] if one.end_s - one.start_s >= SHORTEST_BASELINE_S]
        return long[-1] if long else None

    @property
    def baseline(self) -> Segment | None:
        """The chosen segment while it is not the current one, else ``earlier``."""
        segments = self.segments
        for segment in reversed(segments[:-1]):
            if segment.name == self.chosen != segments[-1].name:
                return segment
        return self.earlier

    def turn(self) -> str:
        """Choose the segment before the present baseline, going round; returns its name, empty when there is none."""
        names = [segment.name for segment in self.segments[:-1]]
        if not names:
            return ""
        present = self.baseline
        self.chosen = names[(names.index(present.name) if present else 0) - 1]
        return self.chosen

    def unique(self, stem: str) -> str:
        """``stem``, with a number when a segment of that name exists."""
        taken = {segment.name for segment in self.store.segments}
        if stem not in taken:
            return stem
        return next(name for number in range(2, len(taken) + 3) if (name := f"{stem}-{number}") not in taken)

    def now_s(self) -> float:
        """Now, on the clock that the samples carry: the moment on screen; a recording's ends with its newest sample."""
        if self.until_s is not None:
            return self.until_s
        span, now = self.store.span, self.clock()
        newest = span[1] if span else now
        return now if abs(now - newest) < _LIVE_S else newest
