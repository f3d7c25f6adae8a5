"""How far a diagnosis reaches: rules that could be judged, rules that nearly fired, and what would let more of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from kvscope.finding import Coverage, Evidence, Finding, Light, Near, Step, Waiting
from kvscope.judge import MARK_ONE
from kvscope.signals.remedies import NOBODY

if TYPE_CHECKING:
    from kvscope.checks import Check
    from kvscope.playbook_schema import Playbook

NEAR = 0.25
"""A rule whose one failing check lies within this part of its bound is told as near. It decides nothing."""
TRACE = "a profiler trace of a few steps"
LONGER = "watch for longer"
_ALTERNATIVES = "; "
_MOST_NEEDS = 6
"""A rule that lacks more different things is out of reach of two ways."""


def coverage(rules: Sequence[Playbook], findings: Iterable[Finding]) -> Coverage:
    """Count what ``findings``, one a rule and in their order, could tell."""
    judged, near, waiting = 0, [], []
    for rule, finding in zip(rules, findings, strict=True):
        if finding.verdict == "needs_data":
            waiting.append(waits(finding))
            continue
        judged += 1
        if finding.verdict == "silent" and (found := _near(rule, finding)) is not None:
            near.append(found)
    near.sort(key=lambda one: one.distance)
    return Coverage(len(rules), judged, tuple(near), lights(waiting), tuple(waiting))


def lights(waiting: Iterable[Waiting]) -> tuple[Light, ...]:
    """What would let rules speak that cannot, the one that helps most first; each counts rules that need it alone."""
    found: dict[str, list[str]] = {}
    for one in waiting:
        for way in one.needs[0] if one.needs else ():
            if not way.startswith(NOBODY) and all(way in ways for ways in one.needs):
                found.setdefault(way, []).append(one.rule)
    return tuple(
        Light(way, tuple(rules)) for way, rules in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    )


def shortest(waiting: Iterable[Waiting], most: int = 3) -> tuple[Step, ...]:
    """The few steps that let most rules speak, each with the rules it adds to those of the steps before it.

    A step is one way, or two that only together let rules speak; what adds most a way comes first (greedy: each cover
    of so many ways reaches at least 63 % of the rules the best one would).
    """
    left = {one.rule: one.needs for one in waiting if one.needs}
    steps: list[Step] = []
    while left and len(steps) < most:
        step = max(_candidates(left), key=lambda one: (len(one.rules) / len(one.ways), -len(one.ways)), default=None)
        if step is None:
            break
        steps.append(step)
        taken = set(step.ways)
        left = {rule: tuple(ways for ways in needs if not taken & set(ways)) for rule, needs in left.items()}
        left = {rule: needs for rule, needs in left.items() if needs}
    return tuple(steps)


def _candidates(left: Mapping[str, tuple[tuple[str, ...], ...]]) -> Iterator[Step]:
    """Every way, and every two, that let at least one rule speak."""
    found: dict[tuple[str, ...], set[str]] = {}
    for rule, needs in left.items():
        for ways in product(*needs) if len(needs) <= _MOST_NEEDS else ():
            chosen = tuple(sorted(set(ways)))
            if len(chosen) <= 2 and not any(way.startswith(NOBODY) for way in chosen):
                found.setdefault(chosen, set()).add(rule)
    for ways, rules in sorted(found.items()):
        alone = (found.get((way,), set()) for way in ways) if len(ways) > 1 else ()
        yield Step(ways, tuple(sorted(rules.union(*alone))))


def waits(finding: Finding) -> Waiting:
    """What a rule lacks that needs data, once each: of every lack the ways to supply it, one of which is enough."""
    unknown = [one for one in finding.evidence if one.answer == "unknown" and one.role in ("symptom", "cause")]
    return Waiting(finding.id, tuple(dict.fromkeys(_ways(one) for one in unknown)) or ((MARK_ONE,),))


def _ways(evidence: Evidence) -> tuple[str, ...]:
    """Each thing that would supply it by itself; an answer within its own error needs more time."""
    if not evidence.missing:
        return (LONGER,)
    remedy = evidence.remedy or evidence.missing
    first = remedy.partition(_ALTERNATIVES)[0]
    return tuple(way for way in ("" if TRACE in first else first, TRACE if TRACE in remedy else "") if way)


def _near(rule: Playbook, finding: Finding) -> Near | None:
    """The rule's one symptom check that failed, where it lies near its bound and every other one holds."""
    pairs = [
        (check, one)
        for check, one in zip(rule.symptom, (e for e in finding.evidence if e.role == "symptom"), strict=True)
        if one.answer != "yes"
    ]
    if len(pairs) != 1:
        return None
    check, evidence = pairs[0]
    distance = _distance(check, evidence)
    if distance is None or distance > NEAR:
        return None
    return Near(rule.id, rule.title, evidence.signal, evidence.value or 0.0, check.threshold, evidence.unit, distance)


def clearly_gone(rule: Playbook, finding: Finding) -> bool:
    """Whether a rule is not merely silent but far from speaking: a check of it failed by more than NEAR of its bound.

    What lies nearer begins and ends with every breath of noise.
    """
    checks = (*rule.symptom, *rule.cause.checks, *rule.cause.any)
    pairs = list(zip(checks, finding.evidence, strict=True))
    needed = len(checks) - len(rule.cause.any)
    return any(_far(*pair) for pair in pairs[:needed]) or (
        bool(rule.cause.any) and all(_far(*pair) for pair in pairs[needed:])
    )


def _far(check: Check, evidence: Evidence) -> bool:
    if evidence.answer != "no":
        return False
    distance = _distance(check, evidence)
    return distance is None or distance > NEAR


def _distance(check: Check, evidence: Evidence) -> float | None:
    """How far the value is from the bound, as a part of the bound; None where there is no such number."""
    if check.compares or evidence.value is None or not check.threshold:
        return None
    return abs(evidence.value - check.threshold) / abs(check.threshold)
