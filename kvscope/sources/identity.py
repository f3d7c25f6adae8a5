"""Who answers behind one address: the same process as before, one that restarted, another one, or several in turns.

Counters only grow while a process lives, so a page belongs to the process whose last page it continues. What continues
none is a restart or another engine; what continues one that was taken to be gone shows that several answer in turns,
as behind a load balancer, and from then on each is followed by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Generic, TypeVar

K = TypeVar("K")

_FLOAT_NOISE = 1e-9
"""An exporter that adds its processes up may do so in another order next time: less than this share is rounding."""
MOST_PROCESSES = 16
"""Processes remembered behind one address; the one not seen for longest is forgotten."""
_MOST_COUNTERS = 50_000
_IMPLAUSIBLE = 10.0
"""A page that would mean so many times a process's growth so far is rather another one's, if there is one it fits."""
_PACE, _LEAP = 3.0, 0.05
"""Of several, a page is one's that grew by three times its pace at most, or by a twentieth where none is known yet."""
_KEPT, _FALLS, _FEW_PAGES = 0.2, 4, 10
_JUMP, _LEAST_JUMP = 1000.0, 1e6
"""Growth of a thousand times what it was, by a million at least and in most counters that grew, is no load."""


_SAME_START_S = 1.0
"""A start time that an exporter works out anew (now less uptime) differs by less each time; a restart takes longer."""


class Seen(Enum):
    """What a page says of who wrote it."""

    SAME = "the same process"
    RESTARTED = "it restarted"
    EXCHANGED = "another engine"
    SEVERAL = "several in turns"


@dataclass(slots=True)
class _Process(Generic[K]):
    """One process as far as its pages told: last counters, when, how fast it grows (per second; None: not known)."""

    number: int
    model: str
    start: float | None
    counters: dict[K, float]
    t: float
    grows: float | None = None
    pages: int = 1

    def continued(self, counters: Mapping[K, float], start: float | None, model: str) -> bool:
        """Whether a page can be this process's next one."""
        if start is not None and self.start is not None and abs(start - self.start) > _SAME_START_S:
            return False
        if model and self.model and model != self.model:
            return False
        return not self.fallen(counters)

    def fallen(self, counters: Mapping[K, float]) -> list[K]:
        """Return the counters that are lower than they were."""
        last = self.counters
        return [
            key
            for key, value in counters.items()
            if (before := last.get(key)) is not None and value < before - abs(before) * _FLOAT_NOISE
        ]

    def last_of(self, key: K) -> float | None:
        return self.counters.get(key)

    def growth(self, counters: Mapping[K, float]) -> float:
        last = self.counters
        return sum([value - last[key] for key, value in counters.items() if key in last])

    def at_pace(self, counters: Mapping[K, float], t: float) -> bool:
        """Whether a page continues this process at the pace of before, or, where none is known, without a leap."""
        grown = self.growth(counters)
        if self.grows is None:
            return grown <= _LEAP * sum(self.counters.values())
        return grown <= _PACE * (self.grows + 1.0) * max(t - self.t, 1e-3)

    def take(self, counters: dict[K, float], start: float | None, model: str, t: float) -> None:
        self.pages += 1
        grown, passed = self.growth(counters), t - self.t
        if passed > 0:
            rate = grown / passed
            self.grows = rate if self.grows is None else 0.7 * self.grows + 0.3 * rate
        # A family that is absent from one page is compared with the last page that had it.
        kept = self.counters if len(self.counters) <= _MOST_COUNTERS else {}
        self.counters = {**kept, **counters}
        self.start, self.model, self.t = (start if start is not None else self.start), (model or self.model), t


@dataclass(slots=True)
class Answer(Generic[K]):
    """``seen`` since the page before, ``number`` of the process (0 the first), and why, in words for a person."""

    seen: Seen
    number: int = 0
    why: str = ""
    fallen: list[K] = field(default_factory=list)


class Processes(Generic[K]):
    """Follows the processes behind one address. ``several`` once it is certain that more than one answers in turns."""

    def __init__(self) -> None:
        self.several = False
        self._known: list[_Process[K]] = []
        self._current: _Process[K] | None = None
        self._made = 0
        self._after_falls: deque[float] = deque(maxlen=_FALLS)

    def see(self, counters: dict[K, float], start: float | None, model: str, t: float) -> Answer[K]:
        """Say whose page this is; ``start`` is its process's start time where told, ``model`` what it serves."""
        current = self._current
        if current is None:
            return Answer(Seen.SAME, self._begin(counters, start, model, t).number)
        fitting = [one for one in self._known if one.continued(counters, start, model)]
        if self.several:
            return Answer(Seen.SAME, self._one_of(fitting, counters, start, model, t).number)
        others = [one for one in fitting if one is not current]
        if current in fitting and not (others and self._doubtful(current, counters, t)):
            if self._jumped(current, counters, t):
                return self._another(counters, start, model, t, "its counters jumped as no load makes them")
            current.take(counters, start, model, t)
            return Answer(Seen.SAME, current.number)
        anew = start is not None and current.start is not None and start > current.start
        if others or (not anew and (self._kept(current, counters) or self._again_and_again(current, counters))):
            self.several = True
            return Answer(Seen.SEVERAL, self._one_of(others, counters, start, model, t).number)
        if model and current.model and model != current.model:
            return self._another(counters, start, model, t, f"it serves {model}, before it was {current.model}")
        fallen = current.fallen(counters)
        why = "its start time changed" if not fallen else f"{len(fallen)} counters went back"
        return Answer(Seen.RESTARTED, self._begin(counters, start, model, t).number, why, fallen)

    def _one_of(
        self, fitting: list[_Process[K]], counters: dict[K, float], start: float | None, model: str, t: float
    ) -> _Process[K]:
        """Return whose page it is of several: the nearest below that it continues at its pace, else a new one."""
        likely = [one for one in fitting if one.at_pace(counters, t)]
        if not likely:
            return self._begin(counters, start, model, t)
        chosen = self._current = min(likely, key=lambda one: one.growth(counters))
        chosen.take(counters, start, model, t)
        return chosen

    def _again_and_again(self, current: _Process[K], counters: Mapping[K, float]) -> bool:
        """Whether the pages after each fall continue each other: restarts would begin anywhere, and from zero."""
        if current.fallen(counters):
            self._after_falls.append(sum(counters.values()))
        after = list(self._after_falls)
        return len(after) == _FALLS and all(low < high <= 1.1 * low for low, high in pairwise(after))

    @staticmethod
    def _kept(process: _Process[K], counters: Mapping[K, float]) -> bool:
        """Whether counters that fell still hold much of what they held: a process that starts counts from zero."""
        last, fallen = process.counters, process.fallen(counters)
        if process.pages < _FEW_PAGES or 2 * len(fallen) < sum([last.get(key, 0.0) > 0 for key in counters]):
            return False
        return sum([counters[key] for key in fallen]) > _KEPT * sum([last[key] for key in fallen])

    def _another(self, counters: dict[K, float], start: float | None, model: str, t: float, why: str) -> Answer[K]:
        return Answer(Seen.EXCHANGED, self._begin(counters, start, model, t).number, why)

    def _begin(self, counters: dict[K, float], start: float | None, model: str, t: float) -> _Process[K]:
        fresh = self._current = _Process(self._made, model, start, dict(counters), t)
        self._made += 1
        self._known.append(fresh)
        if len(self._known) > MOST_PROCESSES:
            self._known.remove(min(self._known[:-1], key=lambda one: one.t))
        return fresh

    @staticmethod
    def _doubtful(process: _Process[K], counters: dict[K, float], t: float) -> bool:
        """Whether a page that fits may be another's all the same: nothing is known of its pace, or it is far off."""
        if process.grows is None:
            return True
        return t > process.t and process.growth(counters) / (t - process.t) > _IMPLAUSIBLE * (process.grows + 1.0)

    @staticmethod
    def _jumped(process: _Process[K], counters: dict[K, float], t: float) -> bool:
        if process.grows is None or process.grows <= 0 or t <= process.t:
            return False
        grown = process.growth(counters)
        if grown <= _LEAST_JUMP or grown / (t - process.t) <= _JUMP * process.grows:
            return False
        # Bytes of one transfer may come at once; another process counts everything from elsewhere.
        steps = [(process.last_of(key), value) for key, value in counters.items()]
        grew = [(before, value) for before, value in steps if before is not None and value > before]
        return 2 * sum([value > 2 * before + 1 for before, value in grew]) > len(grew)
