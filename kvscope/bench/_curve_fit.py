"""From measured points to coefficients by length: few pieces, each an upper bound of what was measured in it.

Breakpoints are found, not given: among all ways to cut the measured lengths into so many pieces the one that reserves
least beyond the points is taken, and a further piece must save at least ``WORTH`` of the reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

MOST_PIECES = 4
WORTH = 0.03
LEAST_MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """Requests of ``tokens``: part of the uncompressed size they held, from the least to the most of the repeats."""

    tokens: int
    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True)
class Fit:
    """``pieces``: from that many tokens on, that coefficient; ``margin`` to put on top of every one of them."""

    pieces: tuple[tuple[int, float], ...]
    margin: float
    excess: float
    """How much more than measured the pieces reserve, mean over the points, margin not included."""

    def coefficient(self, tokens: int) -> float:
        """The coefficient for a request of that length, without margin."""
        return next(value for start, value in reversed(self.pieces) if tokens >= start)

    @property
    def text(self) -> str:
        """As the engine's knob ``curve`` reads it."""
        return ",".join(f"{start}:{value:.4g}" for start, value in self.pieces)


def fit(points: Sequence[Point]) -> Fit:
    """Return the coarsest pieces that are close to the points; needs one point, lengths rising."""
    best = _pieces(points, ())
    for count in range(1, min(MOST_PIECES, len(points))):
        finer = min((_pieces(points, cuts) for cuts in combinations(range(1, len(points)), count)), key=lambda p: p[1])
        if best[1] - finer[1] >= WORTH:
            best = finer
    return Fit(best[0], margin_of(points), best[1])


def margin_of(points: Sequence[Point]) -> float:
    """Return twice what repeats differed by, at least ``LEAST_MARGIN``: a few points do not show the tail."""
    return max([LEAST_MARGIN, *(2 * (point.high - point.low) / point.mean for point in points)])


def _pieces(points: Sequence[Point], cuts: tuple[int, ...]) -> tuple[tuple[tuple[int, float], ...], float]:
    """Return pieces that start at 0 and at the points ``cuts``, and their mean excess.

    Between a piece's last point and the next one's first point, lengths are covered by whichever of the two is larger.
    """
    edges, found, excess = (0, *cuts, len(points)), [], 0.0
    for low, high in pairwise(edges):
        inside = points[low:high]
        value = _rounded_up(max(point.high for point in points[low : high + 1]))
        found.append((points[low].tokens if low else 0, value))
        excess += sum(value / point.mean - 1 for point in inside)
    return tuple(found), excess / len(points)


def _rounded_up(value: float) -> float:
    """Three decimals, never below."""
    return -(-value * 1000 // 1) / 1000
