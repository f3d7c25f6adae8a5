"""One time line out of work that overlaps, every instant counted once, and what the work of a CPU thread belongs to.

Of kernels that run at the same time, the one that started first has the instant. A copy or a collective has an instant
only while no other kernel runs: what is hidden behind computing costs no token any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kvscope.sources.trace.events import LAUNCH, MODULE, NOTE, OP, Trace
from kvscope.sources.trace.rules import HOST, Rules

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


Segment = tuple[float, float, str, int]
"""Start and end (µs), class of work, index of the event it belongs to."""


class Meaning(NamedTuple):
    """``work`` as far as the CPU side says it; ``sure``: the operator or its module says it, not the bare name."""

    work: str
    sure: bool


_NOTHING = Meaning("", False)
_SOFT = ("elementwise", "norm", "index", "gather")


class Frame(NamedTuple):
    """An event on the stack: until when, what it is for certain, what its module says, what its name suggests."""

    end: float
    strong: str
    context: str
    weak: str


def ordered(trace: Trace, lane: int) -> list[int]:
    """Return the events of a thread, outer ones before what they contain."""
    found = [index for index, where in enumerate(trace.lane) if where == lane]
    found.sort(key=lambda index: (trace.start[index], -trace.duration[index]))
    return found


def meanings(trace: Trace, order: Sequence[int], step_starts: Sequence[float], rules: Rules) -> dict[int, Meaning]:
    """Return what every event of a thread belongs to, by index."""
    found: dict[int, Meaning] = {}
    stack: list[Frame] = []
    for index in order:
        start = trace.start[index]
        while stack and stack[-1].end <= start:
            stack.pop()
        frame = _frame(trace, index, stack[-1] if stack else None, rules)
        stack.append(frame)
        found[index] = _meaning(frame)
    _eager_attention(trace, order, found, rules)
    _tails(trace, order, found, step_starts)
    return found


def _frame(trace: Trace, index: int, outer: Frame | None, rules: Rules) -> Frame:
    kind, name = trace.kind[index], trace.names[trace.name[index]]
    strong, context, weak = (outer.strong, outer.context, outer.weak) if outer else ("", "", "")
    end = trace.start[index] + trace.duration[index]
    if kind in (NOTE, MODULE):
        # The innermost module that says anything counts; what it is inside of has decided before.
        return Frame(end, strong, rules.context(name) or context, weak)
    if kind == OP:
        verdict = rules.op(name, trace.traits[trace.trait[index]])
        if verdict is not None and verdict.weak:
            weak = verdict.work
        elif verdict is not None:
            strong = strong or verdict.work
    return Frame(end, strong, context, weak)


def _meaning(frame: Frame) -> Meaning:
    if frame.strong:
        return Meaning(frame.strong, True)
    # That only a shape changes is certain whatever module asks for it.
    if frame.context and frame.weak != HOST:
        return Meaning(frame.context, True)
    return Meaning(frame.weak, False) if frame.weak else _NOTHING


def _eager_attention(trace: Trace, order: Sequence[int], found: dict[int, Meaning], rules: Rules) -> None:
    """Give to attention what lies between two batched products around a softmax; a lone softmax is elementwise."""
    between: list[int] = []
    softmaxes: list[int] = []
    started = False
    for index in order:
        name, meaning = trace.names[trace.name[index]], found[index]
        if trace.kind[index] == OP and rules.product.search(name) and meaning.work == "attend":
            if started and softmaxes:
                for inner in between:
                    found[inner] = Meaning("attend", True)
                softmaxes = []
            started, between = True, []
        elif meaning.work == "gemm":
            _lone(softmaxes, found)
            started, between, softmaxes = False, [], []
        elif not meaning.sure:
            if rules.softmax.search(name) or (softmaxes and trace.kind[index] == LAUNCH and meaning.work == "attend"):
                softmaxes.append(index)
            if meaning.work in (*_SOFT, "attend"):
                between.append(index)
    _lone(softmaxes, found)


def _lone(softmaxes: Sequence[int], found: dict[int, Meaning]) -> None:
    for index in softmaxes:
        if found[index] == Meaning("attend", False):
            found[index] = Meaning("elementwise", False)


def _tails(trace: Trace, order: Sequence[int], found: dict[int, Meaning], step_starts: Sequence[float]) -> None:
    """What follows the last product of a step chooses the next token: logits, top-k, softmax, stop conditions."""
    if not step_starts:
        return
    last = [-1.0] * len(step_starts)
    for index in order:
        if found[index].work in ("gemm", "attend") and (step := bisect_right(step_starts, trace.start[index])):
            last[step - 1] = max(last[step - 1], trace.start[index] + trace.duration[index])
    for index in order:
        step = bisect_right(step_starts, trace.start[index])
        if step and trace.start[index] >= last[step - 1] >= 0 and not found[index].sure and found[index].work in _SOFT:
            found[index] = Meaning("sampling", True)


def self_times(trace: Trace, order: Sequence[int], work_of: Callable[[int], str]) -> Iterator[Segment]:
    """Yield when each event itself ran, what it contains left out; disjoint and in time order."""
    stack: list[tuple[float, int]] = []
    at = float("-inf")
    for index in order:
        start, end = trace.start[index], trace.start[index] + trace.duration[index]
        while stack and stack[-1][0] <= start:
            until, inner = stack.pop()
            if until > at:
                yield at, until, work_of(inner), inner
                at = until
        if stack and start > at:
            yield at, start, work_of(stack[-1][1]), stack[-1][1]
        at = max(at, start)
        # Clock jitter lets a child end after its parent; the parent's end holds.
        stack.append((min(end, stack[-1][0]) if stack else end, index))
    while stack:
        until, inner = stack.pop()
        if until > at:
            yield at, until, work_of(inner), inner
            at = until
