"""Answer one check from its interval: yes, no, or unknown when the numbers do not reach that far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from kvscope import signals
from kvscope.amounts import amount
from kvscope.checks import Check
from kvscope.finding import Evidence, RivalState
from kvscope.signals import significance
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.significance import Answer
from kvscope.store import Segment, Store

NO_BASELINE = "there is no second segment to compare with"
MARK_ONE = "mark a segment before and after the change"
Role = Literal["symptom", "cause", "prediction"]


@dataclass(frozen=True, slots=True)
class Pair:
    """The segments a rule is judged on; without a baseline nothing can be up, down or flat."""

    store: Store
    current: Segment
    baseline: Segment | None = None

    def now(self, signal: str) -> Reading | Missing:
        """Read a signal in the current segment."""
        return signals.compute(signal, self.store, self.current)

    def before(self, signal: str) -> Reading | Missing:
        """Read a signal in the baseline."""
        if self.baseline is None:
            return Missing(NO_BASELINE, MARK_ONE)
        return signals.compute(signal, self.store, self.baseline)


def judge(check: Check, pair: Pair, role: Role = "cause") -> Evidence:
    """Answer ``check`` and keep every number that went into the answer."""
    now = pair.now(check.signal)
    before = pair.before(check.signal) if check.compares else None
    evidence = Evidence(check.name, check.signal, check.says, "unknown", role=role)
    if isinstance(now, Reading):
        evidence = replace(
            evidence, value=now.value, error=now.error, unit=now.unit, source=now.source, batches=now.batches
        )
    if isinstance(before, Reading):
        evidence = replace(evidence, baseline=before.value, baseline_error=before.error)
    asked = (before,) if check.kind == "is" and check.where == "baseline" else (now, before)
    for reading in asked:
        if isinstance(reading, Missing):
            return replace(evidence, missing=reading.reason, remedy=reading.remedy)
    if check.kind == "is":
        answers = [
            significance.compared(reading, check.sense, check.threshold) for reading in _judged(check, now, before)
        ]
        return replace(evidence, answer=all_of(answers))
    assert isinstance(now, Reading)
    assert isinstance(before, Reading)
    return _changed(check, evidence, now, before)


def all_of(answers: list[Answer]) -> Answer:
    """Yes when all are, no when any is, else unknown."""
    if "no" in answers:
        return "no"
    return "unknown" if "unknown" in answers else "yes"


def any_of(answers: list[Answer]) -> Answer:
    """Yes when any is, no when all are, else unknown."""
    if "yes" in answers:
        return "yes"
    return "unknown" if "unknown" in answers else "no"


def exclusion(evidence: tuple[Evidence, ...]) -> tuple[RivalState, Evidence]:
    """Return a rival's state from the checks that exclude it, and the check that decided, with the others beside it."""
    answers = [one.answer for one in evidence]
    if all_of(answers) == "yes":
        first, *others = evidence
        beside = [f"{one.signal} {one.says} ({_number(one)})" for one in others]
        return "excluded", replace(first, says=", and ".join([first.says, *beside]))
    if "no" in answers:
        return "open", evidence[answers.index("no")]
    unmeasured = [one for one in evidence if one.missing]
    return ("unmeasured", unmeasured[0]) if unmeasured else ("open", evidence[answers.index("unknown")])


def _number(evidence: Evidence) -> str:
    if evidence.change is not None:
        return f"{evidence.change:+.1%}"
    return amount(evidence.value, evidence.unit) if evidence.value is not None else "unknown"


def _judged(check: Check, now: Reading | Missing, before: Reading | Missing | None) -> list[Reading]:
    wanted = {"current": (now,), "baseline": (before,), "both": (now, before)}[check.where]
    return [reading for reading in wanted if isinstance(reading, Reading)]


def _changed(check: Check, evidence: Evidence, now: Reading, before: Reading) -> Evidence:
    found = significance.change(now, before, points=check.bound.points)
    evidence = replace(evidence, answer=found.answers(check.kind, check.bound.size), points=found.points)
    return replace(evidence, change=found.size, change_error=found.error) if found.known else evidence
