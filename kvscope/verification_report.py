"""The outcome of an experiment, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvscope import amounts, wording
from kvscope.errors import EXIT_FINDING, EXIT_NO_DATA, EXIT_OK
from kvscope.signals.significance import FEWEST_WINDOWS
from kvscope.verification import Outcome, Predicted, Verification

SCHEMA = 1
EXIT_CODES: Mapping[Outcome, int] = {"confirmed": EXIT_OK, "refuted": EXIT_FINDING, "cannot tell": EXIT_NO_DATA}
_ADVICE: Mapping[Outcome, str] = {
    "confirmed": "Keep the change.",
    "refuted": "Do not keep the change: it did not do what this cause predicts.",
    "cannot tell": "Do not decide on this: measure for longer, or under a steadier load.",
}


def as_text(found: Verification, *, keep: bool = False) -> str:
    """Return the outcome for a terminal or a log."""
    return "\n".join(_text(found, keep))


def _text(found: Verification, keep: bool) -> Iterator[str]:
    finding = found.finding
    yield f"{found.outcome.upper()}  {finding.title} ({finding.id})"
    yield f"  {found.before} → {found.after}, against {', '.join(found.controls) or 'the parts of each'}"
    if finding.experiment is not None:
        yield f"  changed: {finding.experiment.change}"
    for one in found.predicted:
        evidence = one.evidence
        yield f"  {evidence.answer:<8}{evidence.signal} {evidence.says}: {wording.numbers(evidence)}"
        if one.floor is not None:
            yield f"          {_noise(one)}"
    gain = found.gain
    if gain is not None:
        yield f"  expected: {wording.worth(replace(gain, measured=None))}"
    if found.measured_gain is not None:
        error = f" ± {found.measured_error:.2f}" if found.measured_error else ""
        yield f"  measured: {amounts.factor(found.measured_gain)}{error}"
    if found.windows < FEWEST_WINDOWS:
        yield f"  {found.windows} of the {FEWEST_WINDOWS} windows of samples that it takes to tell"
    yield f"  {found.why}."
    kept = " It is still in place." if keep else ""
    yield f"{_ADVICE[found.outcome]}{kept}"


def _noise(one: Predicted) -> str:
    points = one.evidence.points
    assert one.floor is not None
    text = f"moves by {amounts.change(one.floor, None, points=points)[1:]} while nothing is changed"
    if one.detectable is None:
        return text
    return f"{text}; a change of {amounts.change(one.detectable, None, points=points)[1:]} would be told"


def as_json(found: Verification) -> str:
    """Return everything, for a script."""
    gain = found.gain
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "outcome": found.outcome,
        "why": found.why,
        "finding": found.finding.id,
        "slug": found.finding.slug,
        "verdict": found.finding.verdict,
        "before": found.before,
        "after": found.after,
        "controls": list(found.controls),
        "windows": found.windows,
        "windows_needed": FEWEST_WINDOWS,
        "predicted": [_predicted(one) for one in found.predicted],
        "gain": {
            "of": gain.of if gain else None,
            "expected": gain.expected if gain else None,
            "bound": gain.bound if gain else None,
            "measured": found.measured_gain,
            "error": found.measured_error,
        },
    }
    return json.dumps(told, indent=2, ensure_ascii=False)


def _predicted(one: Predicted) -> dict[str, Any]:
    evidence = one.evidence
    return {
        "check": evidence.check,
        "signal": evidence.signal,
        "says": evidence.says,
        "answer": evidence.answer,
        "before": evidence.baseline,
        "after": evidence.value,
        "error": evidence.error,
        "unit": evidence.unit,
        "change": evidence.change,
        "change_error": evidence.change_error,
        "change_in": wording.change_in(evidence),
        "aa_floor": one.floor,
        "detectable": one.detectable,
        "tells": one.tells,
        "missing": evidence.missing,
    }
