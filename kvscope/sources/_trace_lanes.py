"""What the work of one CPU thread belongs to: operators inside operators, modules and annotations around them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kvscope.sources._kernels import HOST, Rules
from kvscope.sources._kineto import LAUNCH, MODULE, NOTE, OP, Trace

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
