"""When it began: the moment from which a symptom holds, and the moment at which an unmarked stream changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from math import sqrt

from kvscope.checks import Check
from kvscope.judge import Pair, all_of, judge
from kvscope.signals import compute
from kvscope.signals.batches import edges
from kvscope.signals.reading import Reading
from kvscope.sources.source import Mark
from kvscope.store import Segment, Store

PIECES = 24
CHANGED = "after-a-step"
"""The segment that begins where an unmarked stream stepped."""
_FEWEST = 6
_CLEAR = 6.0
_LARGE = 0.15
WATCHED = ("kv_resident_bytes", "kv_usage_ratio", "generation_tokens_per_s", "running_requests")
"""Signals in which a change of configuration shows; the first that stepped names the moment."""


def symptom_onset(symptom: Sequence[Check], pair: Pair) -> float | None:
    """Return since when the symptom has held without a break until the end of the current segment, or None.

    The answer is as coarse as a 24th of the segment; where a piece is too short to tell, it counts as holding.
    """
    began = None
    for piece in reversed(pieces(pair.current)):
        here = replace(pair, current=piece)
        answer = all_of([judge(check, here, "symptom").answer for check in symptom])
        if answer == "no":
            return began
        if answer == "yes":
            began = piece.start_s
    return began


def propose_cut(store: Store, segment: Segment) -> tuple[float, str] | None:
    """Return when and in which signal a segment most clearly stepped to another level, or None when it did not.

    A step is a change of 15 % or more that stands six standard errors above the scatter on both sides; pieces in
    which nothing ran are left out, so that a load that ends is no step.
    """
    busy = [piece for piece in pieces(segment) if _ran(store, piece)]
    for name in WATCHED:
        levels = [(piece.start_s, reading.value) for piece in busy if (reading := _level(name, store, piece))]
        found = _step(levels)
        if found is not None:
            return found, name
    return None


def cut_where_it_changed(store: Store) -> str:
    """Start a segment where a stream that nobody marked stepped; return what to say of it, or nothing."""
    segments = store.segments
    if len(segments) == 1 and (found := propose_cut(store, segments[0])):
        store.mark(Mark(CHANGED, found[0], dict(segments[0].tags)))
        segments = store.segments
    if not any(one.name == CHANGED for one in segments):
        return ""
    t = next(one.start_s for one in segments if one.name == CHANGED)
    when = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"inferred: nobody marked a change, and the stream stepped at {when}: what follows is compared with before"


def pieces(segment: Segment) -> list[Segment]:
    """Cut a segment into 24 equal ones."""
    cuts = edges(segment.start_s, segment.end_s, PIECES)
    return [replace(segment, start_s=start, end_s=end) for start, end in pairwise(cuts)]


def _level(name: str, store: Store, piece: Segment) -> Reading | None:
    reading = compute(name, store, piece)
    return reading if isinstance(reading, Reading) else None


def _ran(store: Store, piece: Segment) -> bool:
    running = _level("running_requests", store, piece)
    return running is None or running.value > 0


def _step(levels: Sequence[tuple[float, float]]) -> float | None:
    """Return the time of the cut with the largest clear difference of means."""
    values = [value for _, value in levels]
    best, when = _CLEAR, None
    for cut in range(_FEWEST, len(values) - _FEWEST + 1):
        before, after = values[:cut], values[cut:]
        low, high = sorted((_mean(before), _mean(after)))
        scatter = sqrt(_variance(before) / len(before) + _variance(after) / len(after))
        if high - low < _LARGE * high:
            continue
        clear = (high - low) / (max(scatter, 1e-9 * high) or 1.0)
        if clear > best:
            best, when = clear, levels[cut][0]
    return when


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    middle = _mean(values)
    return sum((value - middle) ** 2 for value in values) / (len(values) - 1)
