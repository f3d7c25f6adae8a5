"""How far a diagnosis reaches: rules that could be judged, rules that nearly fired, and what would let more of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvscope.checks import Check
from kvscope.finding import Coverage, Evidence, Finding, Light, Near
from kvscope.judge import MARK_ONE
from kvscope.playbook_schema import Playbook
from kvscope.signals.remedies import NOBODY

NEAR = 0.25
"""A rule whose one failing check lies within this part of its bound is told as near. It decides nothing."""
TRACE = "a profiler trace of a few steps"
LONGER = "watch for longer"
_ALTERNATIVES = "; "


def coverage(rules: Sequence[Playbook], findings: Iterable[Finding]) -> Coverage:
    """Count what ``findings``, one a rule and in their order, could tell."""
    judged, near, waiting = 0, [], []
    for rule, finding in zip(rules, findings, strict=True):
        if finding.verdict == "needs_data":
            waiting.append(finding)
            continue
        judged += 1
        if finding.verdict == "silent" and (found := _near(rule, finding)) is not None:
            near.append(found)
    near.sort(key=lambda one: one.distance)
    return Coverage(len(rules), judged, tuple(near), lights(waiting))


def lights(waiting: Iterable[Finding]) -> tuple[Light, ...]:
    """What would let rules speak that cannot, the one that helps most first; each counts rules that need it alone."""
    found: dict[str, list[str]] = {}
    for finding in waiting:
        needs = [_ways(one) for one in finding.evidence if one.answer == "unknown" and one.role in ("symptom", "cause")]
        if not needs:
            needs = [(MARK_ONE,)]
        for way in needs[0]:
            if not way.startswith(NOBODY) and all(way in ways for ways in needs):
                found.setdefault(way, []).append(finding.id)
    return tuple(
        Light(way, tuple(rules)) for way, rules in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    )


def shortest(lights: Iterable[Light], most: int = 3) -> tuple[Light, ...]:
    """The few ways that let most rules speak, each with the rules it adds to those of the ways before it."""
    left, steps = {light.way: set(light.rules) for light in lights}, list[Light]()
    while left and len(steps) < most:
        way = max(left, key=lambda one: len(left[one]))
        added = left.pop(way)
        if not added:
            break
        steps.append(Light(way, tuple(sorted(added))))
        left = {one: rules - added for one, rules in left.items()}
    return tuple(steps)


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


def _distance(check: Check, evidence: Evidence) -> float | None:
    """How far the value is from the bound, as a part of the bound; None where there is no such number."""
    if check.compares or evidence.value is None or not check.threshold:
        return None
    return abs(evidence.value - check.threshold) / abs(check.threshold)
