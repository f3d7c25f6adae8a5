"""Two sides, quantity by quantity: what changed, what did not, and what the noise does not let one tell.

From the interval of the change: *same* when all of it lies within the band, *changed* when it stays clear of zero,
*unclear* otherwise. Where dozens of quantities are compared a few intervals of 95 % miss by chance, so *changed* asks
for one and a half times the interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.side import Side

Verdict = Literal["changed", "same", "unclear"]
WITHIN = 0.05
POINTS = 0.02
"""Shares are compared in points: from 0.1 % to 0.2 % is no doubling worth a line."""
CLEAR = 1.5
LOAD_TAGS = ("model", "device", "workload", "offered_load")
"""When these differ, what changed may be the load and not the engine."""


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity on both sides; ``change`` is relative, or in points for a share; ``error`` None: not known."""

    name: str
    unit: str
    before: Quantity
    after: Quantity
    change: float
    error: float | None
    verdict: Verdict

    @property
    def points(self) -> bool:
        return self.unit == "ratio"

    @property
    def good(self) -> bool | None:
        """Whether the change is for the better, or None where no direction is better."""
        if not self.after.better or self.verdict != "changed":
            return None
        return (self.change > 0) == (self.after.better == "higher")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every quantity that both sides have, and those that only one has or none."""

    a: Side
    b: Side
    within: float
    changes: tuple[Change, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    tags: tuple[tuple[str, str, str], ...]
    """Tags that differ: name, value in A, value in B; empty where a side does not say."""

    def of(self, verdict: Verdict) -> list[Change]:
        """The quantities with that verdict, the largest change first."""
        return sorted((one for one in self.changes if one.verdict == verdict), key=lambda one: -abs(one.change))

    @property
    def load_differs(self) -> tuple[str, ...]:
        return tuple(tag for tag, a, b in self.tags if tag in LOAD_TAGS and a and b)


def compare(a: Side, b: Side, within: float = WITHIN) -> Comparison:
    """Hold ``b`` against ``a``."""
    changes = tuple(_changes(a, b, within))
    keys = sorted({*a.tags, *b.tags})
    tags = tuple((key, a.tags.get(key, ""), b.tags.get(key, "")) for key in keys if a.tags.get(key) != b.tags.get(key))
    only_a = tuple(sorted(set(a.quantities) - set(b.quantities)))
    return Comparison(a, b, within, changes, only_a, tuple(sorted(set(b.quantities) - set(a.quantities))), tags)


def _changes(a: Side, b: Side, within: float) -> Iterator[Change]:
    for name, before in a.quantities.items():
        after = b.quantities.get(name)
        if after is None or after.unit != before.unit:
            continue
        size, error = _size(before, after)
        band = min(within, POINTS) if before.unit == "ratio" else within
        yield Change(name, before.unit, before, after, size, error, _verdict(size, error, band))


def _size(before: Quantity, after: Quantity) -> tuple[float, float | None]:
    known = before.error is not None and after.error is not None
    low, high = before.error or 0.0, after.error or 0.0
    if before.unit == "ratio":
        return after.value - before.value, math.hypot(low, high) if known else None
    if before.value == 0:
        moved = after.value != 0 and abs(after.value) > high + low
        return (math.copysign(math.inf, after.value) if moved else 0.0), 0.0 if moved or after.value == 0 else math.inf
    ratio = after.value / before.value
    return ratio - 1, math.hypot(high / before.value, ratio * low / before.value) if known else None


def _verdict(change: float, error: float | None, band: float) -> Verdict:
    if error is None:
        return "unclear"
    if abs(change) + error <= band:
        return "same"
    return "changed" if abs(change) > CLEAR * error else "unclear"
