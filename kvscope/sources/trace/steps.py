"""Where one engine step ends and the next begins in a trace, and whether it was prefill or decode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.sources.trace.events import NOTE, OP, Trace
from kvscope.sources.trace.rules import Rules

EMBEDDING = "aten::embedding"
PREFILL, DECODE, UNTOLD = "prefill", "decode", "untold"


@dataclass(frozen=True, slots=True)
class Step:
    """One step from ``start`` (µs) to the next one's; ``decode_tokens`` is None where nothing says it."""

    start: float
    phase: str
    prefill_tokens: int | None = None
    decode_tokens: int | None = None
    context_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """All steps of the thread that runs the model; ``says`` tells how they were found."""

    found: tuple[Step, ...]
    lane: int
    engine: str
    says: str

    @property
    def told(self) -> bool:
        """Whether prefill and decode can be told apart in every step."""
        return bool(self.found) and all(step.phase != UNTOLD for step in self.found)


def find(trace: Trace, rules: Rules) -> Steps:
    """Return the steps: by the engine's annotations, else by forward passes, else by the profiler's own marks."""
    named: list[tuple[int, Step, str]] = []
    marked: list[tuple[int, Step, str]] = []
    passes: list[int] = []
    for index, kind in enumerate(trace.kind):
        if kind == NOTE:
            step = _annotated(trace.names[trace.name[index]], trace.start[index], rules)
            if step is not None:
                (named if step[1] else marked).append((index, *step))
        elif kind == OP and trace.names[trace.name[index]] == EMBEDDING:
            passes.append(index)
    if named:
        lane = _busiest([trace.lane[index] for index, _, _ in named])
        steps = sorted((step for index, step, _ in named if trace.lane[index] == lane), key=lambda s: s.start)
        engine = named[0][2]
        return Steps(_with_tokens(steps), lane, engine, f"by the annotations of {engine}")
    forward = _passes(trace, passes)
    if forward is not None and (forward.told or len(forward.found) >= len(marked)):
        return forward
    if marked:
        lane = _busiest([trace.lane[index] for index, _, _ in marked])
        steps = sorted((step for index, step, _ in marked if trace.lane[index] == lane), key=lambda s: s.start)
        return Steps(tuple(steps), lane, "", "by the profiler's own steps")
    return Steps((), -1, "", "")


def _annotated(name: str, start: float, rules: Rules) -> tuple[Step, str] | None:
    for rule in rules.steps:
        found = rule.name.search(name)
        if found is None:
            continue
        groups = found.groupdict()
        mode = groups.get("mode") or ""
        prefill, decode = _count(groups.get("prefill_tokens")), _count(groups.get("decode_tokens"))
        if mode:
            decoding = "DECODE" in mode or "VERIFY" in mode
            prefill, decode = (0, _count(groups.get("requests"))) if decoding else (_count(groups.get("tokens")), 0)
        requests, context = _count(groups.get("decode_requests")), _count(groups.get("context_tokens"))
        mean = context / requests if context and requests else None
        if prefill is None or decode is None:
            return Step(start, UNTOLD), rule.engine
        # A step that does both counts whole as what most of its tokens are.
        return Step(start, PREFILL if prefill > decode else DECODE, prefill, decode, mean), rule.engine
    return None


def _with_tokens(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Leave out steps of no token: warm-up and waiting."""
    return tuple(step for step in steps if step.phase == UNTOLD or step.prefill_tokens or step.decode_tokens)


def _passes(trace: Trace, passes: Sequence[int]) -> Steps | None:
    """Cut at every look-up of token ids: a forward pass starts with exactly one, in the largest table there is."""
    if not passes:
        return None
    lane = _busiest([trace.lane[index] for index in passes])
    sizes = {index: trace.traits[trace.trait[index]].sizes for index in passes if trace.lane[index] == lane}
    rows = max((size[0] for size in sizes.values() if size), default=0)
    steps = [_pass(trace.start[i], size) for i, size in sizes.items() if not size or size[0] == rows]
    steps.sort(key=lambda step: step.start)
    steps_found = Steps(tuple(steps), lane, "", "by the number of token ids of each forward pass")
    return steps_found if steps_found.told else Steps(tuple(steps), lane, "", "by the model's forward passes")


def _pass(start: float, sizes: tuple[int, ...]) -> Step:
    if len(sizes) == 3:
        _, batch, length = sizes
        return Step(start, DECODE, 0, batch) if length == 1 else Step(start, PREFILL, batch * length, 0)
    # Token ids in one row may be one request's prompt or many requests' next tokens; a single one is a decode step.
    return Step(start, DECODE, 0, 1) if len(sizes) == 2 and sizes[1] == 1 else Step(start, UNTOLD)


def _busiest(lanes: Sequence[int]) -> int:
    return Counter(lanes).most_common(1)[0][0]


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and len(text) < 16 else None
