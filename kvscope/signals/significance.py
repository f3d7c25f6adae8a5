"""Did it change, by how much, and how sure is that: asked here by checks, verdicts, headlines, replicas, comparisons.

A reading's error is two standard errors of its mean. A count is exact, and still another stretch of the same length
counts another number: two counts are compared as rates, each uncertain by twice its root. A setting is what it is.
A verdict asks for more than a check: three standard errors, and more than what differs while nothing is changed (A/A).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from kvscope.signals.algebra import SHARE
from kvscope.signals.reading import Reading

Answer = Literal["yes", "no", "unknown"]
Verdict = Literal["changed", "same", "unclear"]
WIDER = 1.5
"""From the two standard errors of a reading to the three that a verdict asks for."""
POWER = 1.28
"""A change so many times its interval is told apart from none four times in five (3 + 0.84 standard errors to 3)."""
FEWEST_WINDOWS, FEWEST_BATCHES = 20, 4
"""A number from fewer windows of samples has no error that could be believed, and proves no change."""


@dataclass(frozen=True, slots=True)
class Change:
    """By how much a number changed: in ``points`` of a share, else relative (0.1 = 10 % more); ± ``error``."""

    size: float
    error: float
    points: bool

    @property
    def known(self) -> bool:
        """Whether it can be said as a number: from nothing to something is no percentage."""
        return math.isfinite(self.size) and math.isfinite(self.error)

    @property
    def sure(self) -> bool:
        """Whether it is further from none than its error."""
        return abs(self.size) > self.error

    def within(self, band: float) -> Verdict:
        """Return *same* when all of the interval lies within ``band``, *changed* when it stays clear of none.

        Where dozens of quantities are compared a few intervals of 95 % miss by chance: *changed* asks for three errors.
        """
        if abs(self.size) + self.error <= band:
            return "same"
        return "changed" if abs(self.size) > WIDER * self.error else "unclear"

    def answers(self, kind: str, bound: float) -> Answer:
        """Answer ``up``, ``down``, ``flat``, ``not_up`` or ``not_down`` by ``bound``."""
        size = -self.size if kind in ("down", "not_down") else self.size
        if kind == "flat":
            reach = abs(size)
            return "yes" if reach + self.error <= bound else "no" if reach - self.error > bound else "unknown"
        if size >= bound and size - self.error > 0:
            return "no" if kind.startswith("not_") else "yes"
        if size + self.error < bound:
            return "yes" if kind.startswith("not_") else "no"
        return "unknown"


def change(now: Reading, was: Reading, *, points: bool | None = None) -> Change:
    """Return the change from ``was`` to ``now``, by default in points where both are shares."""
    now, was = _as_rate(now), _as_rate(was)
    if now.unit == SHARE if points is None else points:
        return Change(now.value - was.value, math.hypot(now.error, was.error), True)
    if was.value == 0:
        grew = abs(now.value) > now.error + was.error
        return Change(
            math.copysign(math.inf, now.value) if grew else 0.0, 0.0 if grew or now.value == 0 else math.inf, False
        )
    ratio = now.value / was.value
    return Change(ratio - 1, math.hypot(now.error / was.value, ratio * was.error / was.value), False)


def moved(now: Reading, was: Reading) -> bool:
    """Whether two readings differ by more than their errors together."""
    now, was = _as_rate(now), _as_rate(was)
    return abs(now.value - was.value) > math.hypot(now.error, was.error)


def compared(reading: Reading, sense: str, limit: float) -> Answer:
    """Answer ``>= limit`` or ``<= limit`` by the interval of a reading."""
    low, high = reading.value - reading.error, reading.value + reading.error
    if sense == ">=":
        return "yes" if low >= limit else "no" if high < limit else "unknown"
    return "yes" if high <= limit else "no" if low > limit else "unknown"


def floor_of(unchanged: Iterable[Reading]) -> float:
    """Return the largest difference between stretches in which nothing was changed; 0 where it cannot be told.

    What is exact does not differ by noise: a count's chance is part of every comparison of it.
    """
    values = [one.value for one in unchanged if one.kind == "estimate"]
    return max(values) - min(values) if len(values) > 1 else 0.0


def widened(reading: Reading, floor: float = 0.0) -> Reading:
    """Return a reading with the error that a verdict asks for."""
    return replace(reading, error=math.hypot(WIDER * reading.error, floor))


def thin(reading: Reading) -> bool:
    """Whether an estimate rests on too little to prove a change."""
    return reading.kind != "fact" and (
        reading.samples < FEWEST_WINDOWS or (reading.kind == "estimate" and reading.batches < FEWEST_BATCHES)
    )


def _as_rate(reading: Reading) -> Reading:
    if reading.kind != "count":
        return reading
    per = reading.span_s or 1.0
    chance = max(reading.error, 2 * math.sqrt(abs(reading.value)))
    return replace(reading, value=reading.value / per, error=chance / per, kind="estimate")
