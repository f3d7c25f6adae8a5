"""Amounts as they grow: piecewise levels that bins are cut out of, so that what the bins hold sums to the whole."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, nextafter
from operator import add, mul, sub
from statistics import median

from kvscope.signals import batches as bm

MIN_SAMPLES = 3
_GAP_FACTOR, _GAP_FLOOR_S, _NEAR = 5.0, 5.0, 8


@dataclass(frozen=True, slots=True)
class Part:
    """What one series came to by each of its times. It grows straight between them, or ``jumps`` at each."""

    times: Sequence[float]
    levels: Sequence[float]
    jumps: bool = False
    sign: int = 1

    def level(self, t: float) -> float:
        """Return what had come before ``t``."""
        if not self.jumps:
            return self.sign * bm.at(self.times, self.levels, t)
        index = bisect_left(self.times, t)
        return self.sign * self.levels[index - 1] if index else 0.0


@dataclass(frozen=True, slots=True)
class Flow:
    """A sum of parts; only what it grows by means something."""

    parts: tuple[Part, ...]
    resets: int = 0

    @property
    def start_s(self) -> float:
        return min(part.times[0] for part in self.parts)

    @property
    def end_s(self) -> float:
        """Just past the last sample where parts jump: what came with that sample is part of the flow."""
        return max(nextafter(part.times[-1], inf) if part.jumps else part.times[-1] for part in self.parts)

    @property
    def samples(self) -> int:
        return max(len(part.times) for part in self.parts)

    @property
    def jumps(self) -> bool:
        return any(part.jumps for part in self.parts)

    def grown(self, cuts: Sequence[float]) -> list[float]:
        """Return the increase between every two times of ``cuts``."""
        if len(self.parts) == 1:
            levels = [self.parts[0].level(t) for t in cuts]
        else:
            levels = [sum(part.level(t) for part in self.parts) for t in cuts]
        return list(map(sub, levels[1:], levels))

    def plus(self, *others: Flow) -> Flow:
        """Return the sum of flows, which restart together where they are one process's."""
        if not others:
            return self
        parts = self.parts + tuple(part for other in others for part in other.parts)
        return Flow(parts, max([self.resets, *(other.resets for other in others)]))

    def minus(self, other: Flow) -> Flow:
        """Return this flow less another (both of one source, so that their times agree)."""
        return self.plus(Flow(tuple(Part(p.times, p.levels, p.jumps, -p.sign) for p in other.parts), other.resets))


@dataclass(frozen=True, slots=True)
class Pair:
    """One flow over another: a value over a segment, a point in each bin of a chart."""

    top: Flow
    bottom: Flow
    unit: str
    nothing: str = ""
    source: str = ""
    samples: int = 0
    """How many raw values the number rests on."""
    each: bool = False
    """One value for each request: a batch needs two of them."""

    @property
    def span(self) -> tuple[float, float]:
        """The time in which both flow."""
        return max(self.top.start_s, self.bottom.start_s), min(self.top.end_s, self.bottom.end_s)


def counted(times: Sequence[float], values: Sequence[float], fell: bool) -> tuple[Part, int]:
    """Return a counter's flow and how often it was reset."""
    if not fell:
        return Part(times, values), 0
    lifted, resets = bm.increase(times, values)
    return Part(times, lifted), resets


def during(part: Part, held: frozenset[float]) -> tuple[Part, Part]:
    """Return of a counter's flow what came between samples of ``held``, and the time that this took."""
    keep = [before in held and after in held for before, after in pairwise(part.times)]
    grown = map(mul, map(sub, part.levels[1:], part.levels), keep)
    spent = map(mul, map(sub, part.times[1:], part.times), keep)
    return (
        Part(part.times, list(accumulate(grown, initial=0.0)), sign=part.sign),
        Part(part.times, list(accumulate(spent, initial=0.0))),
    )


def weights(times: Sequence[float]) -> list[float]:
    """Return how long each sample stands: half the way to its neighbours, as far to the other side where there is none.

    Nothing stands for a gap: neither of its ends reaches into it.
    """
    if len(times) < 2:
        return [1.0] * len(times)
    steps = list(map(sub, times[1:], times))
    gaps = gaps_of(steps)
    if not gaps:
        return [half / 2 for half in map(add, [steps[0], *steps], [*steps, steps[-1]])]
    usual = median(steps)
    reach = [None if at in gaps else step for at, step in enumerate(steps)]
    found = []
    for left, right in zip([None, *reach], [*reach, None], strict=True):
        sides = [side for side in (left, right) if side is not None]
        found.append(sum(sides) / len(sides) if sides else usual)
    return found


def gaps_of(steps: Sequence[float]) -> frozenset[int]:
    """Return which times between two samples are gaps: long, and many times what is usual just before and after.

    Usual is what is near: a store keeps its past at a lower resolution, and that is none.
    """
    found = []
    for at, step in enumerate(steps):
        if step > _GAP_FLOOR_S:
            near = [*steps[max(0, at - _NEAR) : at], *steps[at + 1 : at + 1 + _NEAR]]
            if near and step > _GAP_FACTOR * median(near):
                found.append(at)
    return frozenset(found)


def gap_note(times: Sequence[float]) -> str:
    """Say how long the sampling stopped within the segment, or nothing."""
    if len(times) < MIN_SAMPLES:
        return ""
    steps = list(map(sub, times[1:], times))
    gaps = gaps_of(steps)
    return f"; a gap of {max(steps[at] for at in gaps):.0f} s without samples" if gaps else ""
