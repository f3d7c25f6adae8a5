"""Times that do not jump: a clock of our own for what is watched, and saved times that are set straight.

Rates are differences of counters over differences of times. A wall clock is set back and forth under a program; the
monotonic one is not, and is shown as wall time from where both were compared first.
"""

from __future__ import annotations

import datetime
import time
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import Generic, TypeVar

from kvscope.sources.source import Description

K = TypeVar("K")

_SET_S = 2.0
"""A wall clock that is so far from where it should be was set; less is drift that a time service corrects."""
_FEW, _REMEMBERED = 3, 30
_AHEAD, _LEAST_AHEAD_S = 10.0, 5.0
"""A saved time so many usual intervals ahead is looked at: the clock was set, nothing was saved, or nothing ran."""
_STOOD = 0.3
"""Counters that grew by less than this share of what the time would have brought did not run through it."""


def clock_text(t: float) -> str:
    """Return a wall time as people read it in a notice (UTC); one that no calendar has is shown as it stands."""
    try:
        return datetime.datetime.fromtimestamp(t, datetime.UTC).strftime("%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{t:g} s"


def silence(about: Description) -> str:
    """Say that what is watched does not answer, and since when; empty while it does. What it said before is old."""
    if about.alive:
        return ""
    since = f" since {clock_text(about.heard_s)}" if about.heard_s else ""
    return f"{about.target} does not answer{since}: what is shown is of before, and says nothing about now"


class SteadyClock:
    """Seconds since the epoch by the monotonic clock; ``told`` says, once, that the wall clock was set meanwhile."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._offset = wall() - steady()
        self._said = self._offset

    def now(self) -> float:
        """Return the time; it never goes back and never leaps."""
        return self._steady() + self._offset

    def of_wall(self, t: float) -> float:
        """Turn a time that another process just took from the wall clock into one of this clock."""
        return t - (self._wall() - self._steady() - self._offset)

    def told(self) -> str:
        """Return a line for a person when the wall clock was set since the last call, else the empty string."""
        offset = self._wall() - self._steady()
        by, self._said = offset - self._said, offset if abs(offset - self._said) > _SET_S else self._said
        if abs(by) <= _SET_S:
            return ""
        way = "ahead" if by > 0 else "back"
        return (
            f"the clock of this machine was set {way} by {abs(by):.0f} s; times here go on as before, rates are right"
        )


STEADY = SteadyClock()
"""The clock of this process: what is compared with each other must be of one clock."""


class Straightener(Generic[K]):
    """Sets saved times straight: where they go back, or leap ahead while counters did not, the clock was set."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._offset = 0.0
        self._intervals: deque[float] = deque(maxlen=_REMEMBERED)
        self._rates: deque[float] = deque(maxlen=_REMEMBERED)
        self._counters: dict[K, float] = {}
        self._told = 0

    def straight(self, t: float, counters: Mapping[K, float]) -> tuple[float, str]:
        """Return the time to use for a page saved at ``t``, and a line for a person where it is another one."""
        last, usual = self._last, median(self._intervals) if self._intervals else 1.0
        found, notice = t + self._offset, ""
        if last is None:
            self._remember(found, counters)
            return found, ""
        passed, grown = found - last, self._grown(counters)
        if passed < 0:
            notice = f"the saved times go back by {-passed:.0f} s: the clock was set; rates go on from page to page"
        elif passed > max(_LEAST_AHEAD_S, _AHEAD * usual) and self._stood(passed, grown):
            notice = (
                f"the saved times leap ahead by {passed:.0f} s while counters grew as in {usual:.0f} s: the clock was "
                "set, or nothing ran; this stretch is left out of rates"
            )
        if notice:
            self._offset += usual - passed
            found = last + usual
        elif passed > 0:
            self._intervals.append(passed)
            if grown is not None:
                self._rates.append(grown / passed)
        self._remember(found, counters)
        self._told += bool(notice)
        return found, notice if self._told <= 3 else ""

    def _remember(self, t: float, counters: Mapping[K, float]) -> None:
        self._last, self._counters = t, dict(counters)

    def _grown(self, counters: Mapping[K, float]) -> float | None:
        """Return how much all counters grew together; None when one of them fell, so that nothing can be told."""
        last = self._counters
        steps = [value - last[key] for key, value in counters.items() if key in last]
        return sum(steps) if steps and min(steps) >= 0 else None

    def _stood(self, passed: float, grown: float | None) -> bool:
        if grown is None or len(self._rates) < _FEW:
            return False
        usual = median(self._rates)
        return usual > 0 and grown < _STOOD * usual * passed
