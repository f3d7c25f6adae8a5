"""What text and Markdown say alike about a finding's parts."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.finding import Diagnosis, Evidence, Finding, Gain
from kvscope.report import _words

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
        return _words.amount(evidence.value, evidence.unit, evidence.error)
    text = _words.pair(evidence.baseline, evidence.value, evidence.unit, evidence.error)
    if evidence.change is None:
        return text
    return f"{text}  {_words.change(evidence.change, evidence.unit, evidence.change_error)}"


def origin(evidence: Evidence) -> str:
    """Return where the numbers come from and over how many batches."""
    parts = [evidence.source, f"{evidence.batches} batches" if evidence.batches else ""]
    return ", ".join(part for part in parts if part)


def worth(gain: Gain) -> str:
    """Return what removing the cause would give."""
    expected = f"about {_words.factor(gain.expected)}, " if gain.expected is not None else ""
    bound = f"at most {_words.factor(gain.bound)}" if gain.bound is not None else "no upper bound known"
    reads = f" ({gain.basis} from {gain.reads})" if gain.reads else f" ({gain.basis})"
    return f"{expected}{bound} on {gain.of}{reads}"


def told(diagnosis: Diagnosis, *, show_silent: bool) -> list[Finding]:
    """Return the findings that get a paragraph of their own, in order; those another explains are told beneath it."""
    wanted = (*_TOLD, "silent", "needs_data") if show_silent else _TOLD
    ids = {finding.id for finding in diagnosis.findings}
    return [
        finding
        for finding in diagnosis.findings
        if finding.verdict in wanted and not (finding.explained_by and finding.explained_by in ids)
    ]


def folded(diagnosis: Diagnosis, finding: Finding) -> list[Finding]:
    """Return the findings whose symptom this one explains."""
    return [other for other in diagnosis.findings if other.explained_by == finding.id]


def undecided(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings that could not be judged."""
    return [finding for finding in diagnosis.findings if finding.verdict == "needs_data"]


def verdict_line(diagnosis: Diagnosis, checked: Sequence[str]) -> str:
    """Return the one sentence for when nothing was found: what was checked and what was not. Never just "OK"."""
    missing = len(undecided(diagnosis))
    silent = len(checked) - missing if checked else sum(f.verdict == "silent" for f in diagnosis.findings)
    if missing and not silent:
        return f"Nothing could be judged: all {missing} playbooks lack data."
    judged = f"{silent} playbooks found nothing" if silent else "No playbook found anything"
    return f"{judged}; {missing} could not be judged." if missing else f"{judged}, and none lacked data."


def what(source: dict[str, str]) -> str:
    """Return who was looked at, in one line."""
    name = " ".join(source[key] for key in ("engine", "version") if source.get(key))
    rest = [source[key] for key in ("target", "note") if source.get(key)]
    return ", ".join([name or source.get("kind", "unknown source"), *rest])
