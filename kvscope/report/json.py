"""The report that scripts read. Keys and words of schema 1 stay; what is new comes as further keys."""

from __future__ import annotations

import json
import math
from typing import Any

from kvscope.account import Account, Ahead, Change
from kvscope.finding import Coverage, Diagnosis, Evidence, Experiment, Finding, Gain, Rival, SegmentSummary
from kvscope.headroom import Room
from kvscope.state import state_of
from kvscope.wording import change_in, rooms

SCHEMA = 1


def render(diagnosis: Diagnosis) -> str:
    """Return the report as JSON text; a number that is no number becomes null."""
    report = {
        "schema": SCHEMA,
        "source": dict(diagnosis.source),
        "segments": [_segment(segment) for segment in diagnosis.segments],
        "findings": [finding_as_json(finding) for finding in diagnosis.findings],
        "unknown": [
            {"signal": unknown.signal, "reason": unknown.reason, "remedy": unknown.remedy}
            for unknown in diagnosis.unknown
        ],
        "notices": list(diagnosis.notices),
        "state": _state(diagnosis),
        "vitals": {vital.name: dict(vital.values) for vital in diagnosis.vitals},
        "limits": [_limit(room) for room in rooms(diagnosis)],
        **({"coverage": _coverage(diagnosis.coverage)} if diagnosis.coverage else {}),
        **({"account": account_as_json(diagnosis.account)} if diagnosis.account else {}),
        **({"account_before": account_as_json(diagnosis.account_before)} if diagnosis.account_before else {}),
        **({"account_change": _change(diagnosis.account_change)} if diagnosis.account_change else {}),
    }
    return json.dumps(_finite(report), indent=2, ensure_ascii=False, allow_nan=False)


def _segment(segment: SegmentSummary) -> dict[str, Any]:
    return {
        "name": segment.name,
        "start_s": segment.start_s,
        "end_s": segment.end_s,
        "tags": dict(segment.tags),
        "signals": {
            name: {"value": value, "error": error, "unit": unit}
            for name, (value, error, unit) in segment.signals.items()
        },
    }


def finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "title": finding.title,
        "verdict": finding.verdict,
        "slug": finding.slug,
        "cause": finding.cause,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "rivals": [_rival(rival) for rival in finding.rivals],
        "gain": _gain(finding.gain) if finding.gain else {},
        "experiment": _experiment(finding.experiment) if finding.experiment else {},
        "fix": list(finding.fix),
        "explains": list(finding.explains),
        "explained_by": finding.explained_by,
        "notes": finding.notes,
        "onset_s": finding.onset_s,
        "baseline": finding.baseline,
        "current": finding.current,
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "check": evidence.check,
        "signal": evidence.signal,
        "answer": evidence.answer,
        "value": evidence.value,
        "error": evidence.error,
        "unit": evidence.unit,
        "baseline": evidence.baseline,
        "change": evidence.change,
        "change_in": change_in(evidence),
        "source": evidence.source,
        "role": evidence.role,
        "says": evidence.says,
        "baseline_error": evidence.baseline_error,
        "change_error": evidence.change_error,
        "batches": evidence.batches,
        "missing": evidence.missing,
        "remedy": evidence.remedy,
    }


def _rival(rival: Rival) -> dict[str, Any]:
    return {
        "name": rival.name,
        "says": rival.says,
        "state": rival.state,
        "signal": rival.evidence.signal,
        "value": rival.evidence.value,
        "error": rival.evidence.error,
        "unit": rival.evidence.unit,
        "condition": rival.evidence.says,
        "missing": rival.evidence.missing,
        "remedy": rival.evidence.remedy,
        "look": rival.look,
    }


def _gain(gain: Gain) -> dict[str, Any]:
    told = {"of": gain.of, "expected": gain.expected, "bound": gain.bound, "reads": gain.reads, "basis": gain.basis}
    return told | {"measured": gain.measured, "measured_error": gain.measured_error}


def _experiment(experiment: Experiment) -> dict[str, Any]:
    return {
        "change": experiment.change,
        "hold": list(experiment.hold),
        "run": experiment.run,
        "set": dict(experiment.set),
        "predict": [_evidence(evidence) for evidence in experiment.predict],
    }


def _state(diagnosis: Diagnosis) -> dict[str, Any]:
    state = state_of(diagnosis)
    return {"kind": state.kind, "says": state.says}


def _limit(room: Room) -> dict[str, Any]:
    """``factor``: so many times the load of now fits; null where that is not known."""
    return {"name": room.name, "used": room.used, "most": room.most, "factor": room.factor, "held": room.held}


def _coverage(reach: Coverage) -> dict[str, Any]:
    return {
        "rules": reach.rules,
        "judged": reach.judged,
        "near": [
            {"id": one.id, "signal": one.signal, "value": one.value, "bound": one.bound, "distance": one.distance}
            for one in reach.near
        ],
        "would_help": [{"what": one.way, "rules": list(one.rules)} for one in reach.lights],
    }


def account_as_json(account: Account) -> dict[str, Any]:
    """Shares of 1 by level, null where a level cannot be told; a bound that is not known is null."""
    floor = account.bound
    replicas = {name: account_as_json(one) for name, one in account.replicas.items()}
    return {
        "limit": {"name": account.limit.name, "share": account.limit.share, "known": account.limit.known},
        "levels": {level: dict(shares) if shares else None for level, shares in account.levels.items()},
        "levels_known": dict(account.known),
        "token_limit": account.token_limit,
        "bound": None
        if floor is None
        else {
            "weights_s": floor.weights_s,
            "kv_s": list(floor.kv_s),
            "index_s": floor.index_s,
            "flops_s": floor.flops_s,
            "unsplit_s": floor.unsplit_s,
            "from": list(account.sources),
        },
        "vitals": dict(account.vitals),
        "headroom": {**account.headroom, **({"next": _ahead(account.ahead)} if account.ahead else {})},
        "missing": [{"level": one.level, "reason": one.reason, "remedy": one.remedy} for one in account.missing],
        "segment": account.segment,
        **({"replicas": replicas} if replicas else {}),
    }


def _ahead(ahead: Ahead) -> dict[str, Any]:
    return {"change": ahead.change, "at_most": ahead.at_most, "then": ahead.then, "from": ahead.how}


def _change(change: Change) -> dict[str, Any]:
    """Relative changes: -0.5 is half. ``factor``: how many times fewer KV bytes a second, at least and at most."""
    return {
        "verdict": change.verdict,
        "kv_bytes": change.kv_bytes,
        "kv_bytes_from": change.kv_bytes_from,
        "expected": list(change.expected),
        "measured": {"step": change.measured, "token": change.token, "throughput": change.throughput},
        "factor": list(change.factor) if change.factor else None,
        "parts": {part: list(times) for part, times in change.parts.items()},
        "excluded": list(change.excluded),
        "open": list(change.open),
        "from": list(change.sources),
    }


def _finite(value: Any) -> Any:
    """Replace what JSON cannot say: NaN and infinities become null."""
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
