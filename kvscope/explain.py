"""A rule's checks against a target, each with how far it is from the answer that would let the rule fire."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope import amounts, wording
from kvscope.checks import Check
from kvscope.compare import choose
from kvscope.finding import Evidence
from kvscope.judge import Pair, judge
from kvscope.playbook_schema import Playbook
from kvscope.store import Store

_FIRED = "fires"


def explain(rule: Playbook, store: Store, baseline: str | None = None, current: str | None = None) -> list[str]:
    """Return lines: what the rule needs, what was measured, the distance to firing, and what is missing."""
    pair = choose(store, rule.compare, baseline, current)
    against = f", compared with {pair.baseline.name}" if pair.baseline else ""
    lines = [f"{rule.id}: {rule.title}", f"  segment {pair.current.name}{against}"]
    groups = [("symptom (all)", rule.symptom), ("cause (all)", rule.cause.checks), ("cause (one of)", rule.cause.any)]
    for title, checks in groups:
        lines += [f"  {title}", *_checks(checks, pair)] if checks else []
    for rival in rule.rivals:
        lines += [f"  excluded: {rival.says}", *_checks(rival.excluded_when, pair)]
    return lines


def _checks(checks: tuple[Check, ...], pair: Pair) -> Iterator[str]:
    for check in checks:
        evidence = judge(check, pair)
        numbers = wording.numbers(evidence)
        yield f"    {evidence.answer:<8}{check.signal} {check.says}: {numbers}; {distance(check, evidence)}"


def distance(check: Check, evidence: Evidence) -> str:
    """Say how far a check is from yes, the interval included, or what would measure it."""
    if evidence.answer == "yes":
        return _FIRED
    if evidence.missing or evidence.value is None:
        return f"would be measured by: {evidence.remedy}" if evidence.remedy else "cannot be measured here"
    if check.kind == "is":
        error = evidence.error or 0.0
        short = (
            check.threshold - (evidence.value - error)
            if check.sense == ">="
            else evidence.value + error - check.threshold
        )
        return f"{amounts.amount(max(0.0, short), evidence.unit)} away"
    if evidence.change is None:
        return "the change has no number"
    return f"the change is {amounts.change(evidence.change, evidence.change_error, points=check.bound.points)}"
