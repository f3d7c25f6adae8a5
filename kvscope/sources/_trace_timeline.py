"""One time line out of work that overlaps: every instant is counted once.

Of kernels that run at the same time, the one that started first has the instant. A copy or a collective has an instant
only while no other kernel runs: what is hidden behind computing costs no token any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kvscope.sources._kernels import HOST
from kvscope.sources._trace_lanes import Segment

IDLE = "idle"
BEHIND = ("copy_h2d", "copy_d2h", "copy_d2d", "collective")
"""Kinds of work that may hide behind computing."""


def exposed(work: Iterable[Segment]) -> tuple[list[Segment], float]:
    """Return disjoint segments in time order, and the µs of work that ran hidden behind other work."""
    front: list[Segment] = []
    back: list[Segment] = []
    total = 0.0
    for segment in work:
        total += segment[1] - segment[0]
        (back if segment[2] in BEHIND else front).append(segment)
    shown = _first_wins(front)
    shown = sorted(shown + list(_uncovered(_first_wins(back), shown)))
    return shown, total - sum(end - start for start, end, _, _ in shown)


def behind(front: Sequence[Segment], others: Iterable[Segment]) -> list[Segment]:
    """Return ``front`` with what ``others`` did while it did nothing (both sorted within themselves)."""
    return sorted([*front, *_uncovered(_first_wins(list(others)), front)])


def filled(
    shown: Sequence[Segment], start: float, end: float, idle_us: float, busy: Sequence[Segment]
) -> list[Segment]:
    """Return the segments of ``start`` to ``end`` with every gap named: the host's, or idle.

    A gap is idle as far as longer than ``idle_us`` nothing of ``busy`` (operators of the CPU) ran in it either.
    """
    found: list[Segment] = []
    at = start
    for segment in [*shown, (end, end, HOST, -1)]:
        low, high = max(segment[0], start), min(segment[1], end)
        if low > at:
            found += _gap(at, low, idle_us, busy)
        if high > low:
            found.append((low, high, segment[2], segment[3]))
        at = max(at, high)
    return found


def cut(segments: Sequence[Segment], cuts: Sequence[float]) -> list[dict[str, float]]:
    """Return µs by class between every two of ``cuts``."""
    sums: list[dict[str, float]] = [{} for _ in cuts[1:]]
    for start, end, work, _ in segments:
        piece = max(0, bisect_right(cuts, start) - 1)
        while start < end and piece < len(sums):
            until = min(end, cuts[piece + 1])
            if until > start:
                sums[piece][work] = sums[piece].get(work, 0.0) + until - start
                start = until
            piece += 1
    return sums


def _first_wins(segments: list[Segment]) -> list[Segment]:
    segments.sort()
    found: list[Segment] = []
    at = float("-inf")
    for start, end, work, index in segments:
        if end > at:
            found.append((max(start, at), end, work, index))
            at = end
    return found


def _uncovered(segments: Iterable[Segment], cover: Sequence[Segment]) -> Iterable[Segment]:
    """Yield the parts of disjoint sorted segments during which nothing of ``cover`` (likewise) ran."""
    place = 0
    for start, end, work, index in segments:
        while place < len(cover) and cover[place][1] <= start:
            place += 1
        at, over = start, place
        while over < len(cover) and cover[over][0] < end:
            if cover[over][0] > at:
                yield at, cover[over][0], work, index
            at = max(at, cover[over][1])
            over += 1
        if at < end:
            yield at, end, work, index


def _gap(start: float, end: float, idle_us: float, busy: Sequence[Segment]) -> list[Segment]:
    if end - start <= idle_us:
        return [(start, end, HOST, -1)]
    found: list[Segment] = []
    at = start
    for low, high, _, _ in _uncovered([(start, end, HOST, -1)], busy[max(0, bisect_right(busy, (start,)) - 1) :]):
        if high - low > idle_us:
            if low > at:
                found.append((at, low, HOST, -1))
            found.append((low, high, IDLE, -1))
            at = high
    return [*found, (at, end, HOST, -1)] if at < end else found
