"""What of the stream is on screen: which moment, how much before it, and which two segments are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nextafter

from kvscope import order
from kvscope.errors import UsageError
from kvscope.order import Order
from kvscope.screens.charts import window_for
from kvscope.store import Segment, Store

SHORTEST_BASELINE_S = 5.0
_LIVE_S = 60.0
PARTS = 12
"""One step through time is this part of the window."""


class Moment:
    """Where a person stands in time. Data are collected all the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.at_s: float | None = None
        """The moment shown, None for the newest sample."""
        self.overlay = False
        self.window_s = window_for(0.0)
        self._zoom = 0
        self.moved = True
        """Something here changed since the last view was made."""

    def window(self, needed_s: float) -> float:
        """The window that holds ``needed_s``, as long as somebody asked for."""
        self.window_s = window_for(needed_s, self._zoom)
        return self.window_s

    def do(self, asked: Order) -> str:
        """Obey an order that moves through time; UsageError for one that does not."""
        match asked:
            case order.Pause():
                return self.seek(None if self.at_s is not None else self._newest())
            case order.Scrub(steps):
                return self._scrub(steps)
            case order.Seek(time_s, centre):
                return self.seek(time_s if time_s is None or not centre else self._centred(time_s))
            case order.Zoom(steps):
                self._zoom += steps
            case order.Overlay():
                self.overlay = not self.overlay
            case _:
                raise UsageError(f"nobody obeys {asked}")
        self.moved = True
        laid = isinstance(asked, order.Overlay) and self.overlay
        return "The baseline lies under the curves, moved to where the current segment starts" if laid else ""

    def _scrub(self, steps: int) -> str:
        """Go back (negative) or forward by parts of the window; past the newest sample the view goes on by itself."""
        newest = self._newest()
        if newest is None or (self.at_s is None and steps > 0):
            return ""
        at = (self.at_s if self.at_s is not None else newest) + steps * self.window_s / PARTS
        return self.seek(None if at > newest else at)

    def seek(self, time_s: float | None) -> str:
        """Show the moment ``time_s``, None the newest sample for good."""
        span = self._store.span
        self.moved = True
        self.at_s = min(max(time_s, span[0]), span[1]) if time_s is not None and span else None
        return ""

    def _centred(self, time_s: float) -> float | None:
        """The moment that has ``time_s`` in the middle of the window, or as near to it as there are samples."""
        newest = self._newest()
        at = time_s + self.window_s / 2
        return None if newest is None or at >= newest else at

    def _newest(self) -> float | None:
        return self._store.span[1] if self._store.span else None


@dataclass(slots=True)
class Comparison:
    """The two segments on screen."""

    store: Store
    clock: Callable[[], float]
    chosen: str = ""
    shown: str = ""
    """The segment that is looked at; empty for the newest."""
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
        """The open segment, unless another was asked for."""
        segments = self.segments
        named = next((one for one in segments if one.name == self.shown), None)
        return named or (segments[-1] if segments else None)

    @property
    def earlier(self) -> Segment | None:
        """The newest segment before the current one that is long enough to compare with."""
        long = [one for one in self.segments[:-1] if one.end_s - one.start_s >= SHORTEST_BASELINE_S]
        return long[-1] if long else None

    @property
    def baseline(self) -> Segment | None:
        """The chosen segment while it is not the current one, else ``earlier``."""
        current = self.current
        for segment in reversed(self.segments):
            if current is not None and segment.name == self.chosen != current.name:
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
