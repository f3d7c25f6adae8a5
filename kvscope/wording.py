"""What text and Markdown say alike about a finding's parts."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope import amounts
from kvscope.finding import Diagnosis, Evidence, Finding, Gain
from kvscope.headroom import Room, headroom
from kvscope.state import readings, state_of

WORDS = {
    "confirmed": "CONFIRMED",
    "likely": "LIKELY",
    "possible": "POSSIBLE",
    "unexplained": "UNEXPLAINED",
    "needs_data": "NEEDS DATA",
    "refuted": "REFUTED",
    "silent": "SILENT",
}
_TOLD = ("confirmed", "likely", "possible", "unexplained", "refuted")


def numbers(evidence: Evidence) -> str:
    """Return the numbers of a check: before → after ± error and the change, or why there are none."""
    if evidence.value is None:
        return evidence.missing or "no value"
    if evidence.baseline is None:
        return amounts.amount(evidence.value, evidence.unit, evidence.error)
    text = amounts.pair(evidence.baseline, evidence.value, evidence.unit, evidence.error)
    if evidence.change is None:
        return text
    return f"{text}  {amounts.change(evidence.change, evidence.change_error, points=evidence.points)}"


def change_in(evidence: Evidence) -> str:
    """Return ``points`` or ``relative``, whichever the change of this evidence is; empty when there is none."""
    return "" if evidence.change is None else "points" if evidence.points else "relative"


def told_once(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return the checks without those of a cause that the symptom asked already: a rule may rest on what it noticed."""
    seen = {(one.signal, one.says) for one in evidence if one.role == "symptom"}
    return [one for one in evidence if one.role != "cause" or (one.signal, one.says) not in seen]


def origin(evidence: Evidence) -> str:
    """Return where the numbers come from and over how many batches."""
    parts = [evidence.source, f"{evidence.batches} batches" if evidence.batches else ""]
    return ", ".join(part for part in parts if part)


TRIED = ("confirmed", "refuted")
"""Verdicts after an experiment: its predictions carry what was measured then."""


def worth(gain: Gain) -> str:
    """Return what removing the cause brought, where it was tried, and what it was expected to give."""
    brought = ""
    if gain.measured is not None:
        error = f" ± {gain.measured_error:.2f}" if gain.measured_error else ""
        brought = f"brought {amounts.factor(gain.measured)}{error}; expected "
    expected = f"about {amounts.factor(gain.expected)}, " if gain.expected is not None else ""
    bound = f"at most {amounts.factor(gain.bound)}" if gain.bound is not None else "no upper bound known"
    reads = f" ({gain.basis} from {gain.reads})" if gain.reads else f" ({gain.basis})"
    return f"{brought}{expected}{bound} on {gain.of}{reads}"


def told(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings that get a paragraph of their own, in order; those another explains are told beneath it."""
    ids = {finding.id for finding in diagnosis.findings}
    return [
        finding
        for finding in diagnosis.findings
        if finding.verdict in _TOLD and not (finding.explained_by and finding.explained_by in ids)
    ]


def folded(diagnosis: Diagnosis, finding: Finding) -> list[Finding]:
    """Return the findings whose symptom this one explains."""
    return [other for other in diagnosis.findings if other.explained_by == finding.id]


def undecided(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings that could not be judged."""
    return [finding for finding in diagnosis.findings if finding.verdict == "needs_data"]


def silent(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings whose symptom is absent; there only when they were asked for."""
    return [finding for finding in diagnosis.findings if finding.verdict == "silent"]


def nothing_found(diagnosis: Diagnosis) -> str:
    """Return the sentences for a report without a finding. They never say that all is well: only what was seen."""
    if diagnosis.coverage or diagnosis.down:
        return state_of(diagnosis).says + "."
    one = " One segment only: mark a change, to compare before with after." if len(diagnosis.segments) == 1 else ""
    return f"No finding: no rule saw its symptom.{one}"


def rooms(diagnosis: Diagnosis) -> tuple[Room, ...]:
    """Return the limits and the room that is left."""
    return headroom(diagnosis.account, readings(diagnosis)) if diagnosis.account else ()


def what(source: dict[str, str]) -> str:
    """Return who was looked at, in one line."""
    name = " ".join(source[key] for key in ("engine", "version") if source.get(key))
    rest = [source[key] for key in ("target", "note") if source.get(key)]
    return ", ".join([name or source.get("kind", "unknown source"), *rest])
