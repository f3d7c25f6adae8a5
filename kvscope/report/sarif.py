"""SARIF 2.1.0, for code hosts that show results beside a build: one rule a playbook, one result a finding."""

from __future__ import annotations

import json
from typing import Any

from kvscope import wording
from kvscope.finding import Diagnosis, Finding, Verdict, fails, unanswered
from probes.version import __version__

_TOLD = ("confirmed", "likely", "possible", "unexplained", "refuted")
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(diagnosis: Diagnosis, fail_on: Verdict = "likely") -> str:
    """Return the findings as a SARIF log; an error is what ends the command in exit code 1.

    What could not be judged or known becomes notifications, not passes.
    """
    told = [one for one in diagnosis.findings if one.verdict in _TOLD]
    target = diagnosis.source.get("target", "")
    run = {
        "tool": {"driver": {"name": "kvscope", "version": __version__, "rules": [_rule(one) for one in told]}},
        "results": [_result(at, one, target, fail_on) for at, one in enumerate(told)],
        "invocations": [
            {"executionSuccessful": not unanswered(diagnosis), "toolExecutionNotifications": _notes(diagnosis)}
        ],
        "properties": {"source": diagnosis.source, "segments": [one.name for one in diagnosis.segments]},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False)


def _rule(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "shortDescription": {"text": finding.title},
        "fullDescription": {"text": finding.cause},
        "help": {"text": "\n".join(finding.fix) or "No fix is advised."},
        "properties": {"cause": finding.slug},
    }


def _result(at: int, finding: Finding, target: str, fail_on: Verdict) -> dict[str, Any]:
    evidence = [f"{one.signal} {one.says}: {one.answer}, {wording.numbers(one)}" for one in finding.evidence]
    rivals = [f"{one.state}: {one.says} ({wording.numbers(one.evidence)})" for one in finding.rivals]
    return {
        "ruleId": finding.id,
        "ruleIndex": at,
        "level": "error" if fails(finding, fail_on) else "none" if finding.verdict == "refuted" else "warning",
        "message": {"text": "\n".join([f"{wording.WORDS[finding.verdict]}: {finding.headline}", *evidence, *rivals])},
        "locations": [
            {"logicalLocations": [{"name": finding.current, "fullyQualifiedName": f"{target}#{finding.current}"}]}
        ],
        "partialFingerprints": {"cause": f"{finding.slug}/{finding.id}"},
        "properties": {"verdict": finding.verdict, "explainedBy": finding.explained_by},
    }


def _notes(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    texts = [*diagnosis.notices]
    texts += [f"not judged: {one.title} ({one.id}): {one.notes}" for one in wording.undecided(diagnosis)]
    texts += [f"not known: {one.signal}: {one.reason}; {one.remedy}" for one in diagnosis.unknown]
    broken = unanswered(diagnosis)
    errors = [{"level": "error", "message": {"text": broken}}] if broken else []
    return [*errors, *({"level": "note", "message": {"text": text}} for text in texts)]
