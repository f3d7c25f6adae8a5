"""A rule's checks against a target, each with how far it is from the answer that would let the rule fire."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope import amounts, wording
from kvscope.checks import Check
from kvscope.compare import choose
from kvscope.finding import Evidence
from kvscope.judge import Pair, judge
from kvscope.playbook_schema import Playbook
from kvscope.store import Store

_FIRED = "fires"
TITLES = {"symptom": "symptom (all)", "cause": "cause (all)", "any": "cause (one of)"}


@dataclass(frozen=True, slots=True)
class Row:
    """One check of a rule. ``part``: ``symptom``, ``cause``, ``any`` (one of the causes) or ``rival: WHAT``."""

    part: str
    answer: str
    signal: str
    says: str
    numbers: str
    distance: str


def rows(rule: Playbook, pair: Pair) -> list[Row]:
    """Return every check of a rule with what was measured and how far it is from the answer the rule needs."""
    parts = [("symptom", rule.symptom), ("cause", rule.cause.checks), ("any", rule.cause.any)]
    parts += [(f"rival: {rival.says}", rival.excluded_when) for rival in rule.rivals]
    found = []
    for part, checks in parts:
        for check in checks:
            evidence = judge(check, pair)
            told = (wording.numbers(evidence), distance(check, evidence))
            found.append(Row(part, evidence.answer, check.signal, check.says, *told))
    return found


def explain(rule: Playbook, store: Store, baseline: str | None = None, current: str | None = None) -> list[str]:
    """Return lines: what the rule needs, what was measured, the distance to firing, and what is missing."""
    pair = choose(store, rule.compare, baseline, current)
    against = f", compared with {pair.baseline.name}" if pair.baseline else ""
    lines, part = [f"{rule.id}: {rule.title}", f"  segment {pair.current.name}{against}"], ""
    for row in rows(rule, pair):
        if row.part != part:
            part = row.part
            lines.append(f"  {TITLES.get(part) or part.replace('rival:', 'excluded:', 1)}")
        lines.append(f"    {row.answer:<8}{row.signal} {row.says}: {row.numbers}; {row.distance}")
    return lines


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
