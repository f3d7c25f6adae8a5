"""Writing playbooks: a file to begin with, the format as a JSON Schema, a rule's distance to firing, and its proof.

The schema is built from the very lists that the loader checks against; what a schema cannot say (a look at a playbook
that exists, a baseline where a check compares) only the loader checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from kvscope import advice, amounts, playbook, signals, wording
from kvscope.checks import BOUND_KEY, CHANGES, Check
from kvscope.compare import choose
from kvscope.diagnose import diagnose
from kvscope.errors import UsageError
from kvscope.finding import VERDICT_ORDER, Evidence, Finding
from kvscope.judge import Pair, judge
from kvscope.playbook_schema import SCHEMA, GainKind, Playbook, Status, Triage
from kvscope.sources import open_target
from kvscope.sources.source import Description, Source
from kvscope.store import Store
from kvscope.verification import verify_change

Schema = dict[str, Any]
_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_TEXTS: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_BOUND: Schema = {"type": ["string", "number"], "pattern": r"^\s*\d+(\.\d+)?\s*(%|pp)?\s*$"}


def json_schema() -> Schema:
    """Return the schema of one playbook file."""
    signal: Schema = {"enum": signals.names()}
    check = {"anyOf": [_level(signal), *(_change(signal, one) for one in CHANGES)]}
    checks: Schema = {"type": "object", "additionalProperties": {"$ref": "#/$defs/check"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kvscope playbook",
        "$defs": {"check": check},
        **_object(
            playbook.REQUIRED,
            schema={"const": SCHEMA},
            id={"type": "string"},
            title=_TEXT,
            status={"enum": list(get_args(Status))},
            triage={"enum": list(get_args(Triage))},
            compare=_object((), baseline=_TEXT, current=_TEXT, same=_TEXTS, optional={"type": "boolean"}),
            symptom={**checks, "minProperties": 1},
            cause=_object(("says", "slug"), says=_TEXT, slug={"pattern": "^[a-z0-9_]+$"}, checks=checks, any=checks),
            rivals={"type": "object", "additionalProperties": _rival()},
            gain=_object(
                ("kind", "signal", "of"),
                kind={"enum": list(get_args(GainKind))},
                signal=signal,
                of=_TEXT,
                remaining=_BOUND,
                growth_limit={"pattern": r"^x?[0-9.]+$"},
                **dict.fromkeys(("measured_by_fall", "measured_by_rise", *playbook.GAIN_SIGNALS), signal),
            ),
            experiment=_object(
                ("change", "predict"),
                change=_TEXT,
                hold=_TEXTS,
                run=_TEXT,
                set={"type": "object", "additionalProperties": _TEXT},
                predict=checks,
            ),
            fix={"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": [_TEXT, _fix()]}}]},
            tests=_object((), **dict.fromkeys(VERDICT_ORDER, _TEXTS)),
            notes=_TEXTS,
            thresholds={"type": "object", "additionalProperties": _provenance()},
        ),
    }


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _level(signal: Schema) -> Schema:
    comparison = {"type": "string", "pattern": r"^\s*(<=|>=)\s*-?\d+(\.\d+)?\s*(%)?\s*$"}
    where = {"enum": ["baseline", "current", "both"]}
    return _object(("signal", "is"), signal=signal, **{"is": comparison}, segment=where, says=_TEXT)


def _change(signal: Schema, kind: str) -> Schema:
    key = BOUND_KEY[kind]
    return _object(("signal", "change", key), signal=signal, change={"const": kind}, **{key: _BOUND}, says=_TEXT)


def _rival() -> Schema:
    one: Schema = {"$ref": "#/$defs/check"}
    several = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    return _object(("says", "excluded_when"), says=_TEXT, excluded_when=several, look=_TEXT)


def _fix() -> Schema:
    return _object(("do",), **dict.fromkeys(("do", "costs", "undo"), _TEXT), **dict.fromkeys(advice.ENGINES, _TEXTS))


def _provenance() -> Schema:
    return _object(("source", "says"), source={"enum": list(playbook.SOURCES)}, says=_TEXT)


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


def read_whole(path: Path) -> tuple[Store, Description]:
    """Return everything a file holds and what it says of itself; errors of the source pass through."""
    return drain(open_target(str(path)))


def drain(source: Source) -> tuple[Store, Description]:
    """Return everything a source gives until it ends, and what it says of itself; it is closed then."""
    store = Store()
    try:
        while True:
            poll = source.poll()
            store.add(poll.samples)
            for mark in poll.marks:
                store.mark(mark)
            if poll.ended:
                return store, source.describe()
    finally:
        source.close()


TEMPLATE = """\
schema: 1
id: {id}
title: What a person sees, in one line
status: trial
compare: {{baseline: before, current: after, same: [model, device, workload, offered_load]}}
symptom:
  slower: {{signal: generation_tokens_per_s, change: down, at_least: 10%}}
cause:
  slug: {slug}
  says: what makes it so, in one sentence
  checks:
    shows: {{signal: waiting_requests, is: ">= 1"}}
rivals:
  preemption:
    says: requests are preempted and recomputed
    excluded_when: {{signal: preemptions_per_s, is: "<= 0.05"}}
gain: {{kind: undo_change, signal: generation_tokens_per_s, of: generation throughput}}
experiment:
  change: one change, nothing else
  hold: [workload, offered load]
  run: kvscope mark experiment
  predict:
    faster: {{signal: generation_tokens_per_s, change: up, at_least: 8%}}
fix:
  - do: the cheapest step first
    vllm: --flag value
    costs: what it costs
    undo: how to undo it
tests:
  likely: {id}.likely.jsonl
  silent: {id}.silent.jsonl
thresholds:
  slower: {{source: judgement, says: why this bound}}
  shows: {{source: judgement, says: why this bound}}
  preemption: {{source: vendor, says: "0.05/s is where an established monitor starts to warn"}}
"""
_AFTERWARDS = ("confirmed", "refuted")


def new(path: Path) -> str:
    """Write a playbook to begin with; UsageError when the file is there or is not named ``ID.yaml``."""
    if path.suffix != ".yaml" or not path.stem.replace("-", "").isalnum():
        raise UsageError(f"{path}: expected a name such as my-rule.yaml")
    if path.exists():
        raise UsageError(f"{path} is there already; give another name")
    path.write_text(TEMPLATE.format(id=path.stem, slug=path.stem.replace("-", "_").lower()), encoding="utf-8")
    return f"{path} written; next: record its tests (kvscope record), then kvscope playbooks test {path}"


def prove(rule: Playbook, rules: tuple[Playbook, ...]) -> list[tuple[bool, str]]:
    """Replay every recording of a rule; return whether it gave its verdict, and a line that says so."""
    found = []
    for verdict, names in rule.tests:
        for name in names:
            path = _place(rule, name)
            said = _verdict(rule, rules, path, afterwards=verdict in _AFTERWARDS)
            text = f"{rule.id}: {name}: {said}" + ("" if said == verdict else f", expected {verdict}")
            found.append((said == verdict, text))
    return found


def _place(rule: Playbook, name: str) -> Path:
    """Return a recording: beside the playbook, or from its folder's parent, as the shipped ones are named."""
    for folder in (rule.path.parent, rule.path.resolve().parent.parent):
        if (folder / name).is_file():
            return folder / name
    written = rule.path.resolve().parent.parent / "tests/generated.py"
    hint = "; python -m tests.generated writes those of this checkout" if written.is_file() else ""
    raise UsageError(f"{rule.path}: tests: no recording {name!r} beside the playbook{hint}")


def _verdict(rule: Playbook, rules: tuple[Playbook, ...], path: Path, *, afterwards: bool) -> str:
    store, description = read_whole(path)
    names = [segment.name for segment in store.segments]
    if afterwards and len(names) < 2:
        raise UsageError(f"{path}: an experiment needs a segment before it and one after")
    now, before = (names[-2], names[-3] if rule.compare and len(names) > 2 else None) if afterwards else (None, None)
    judged = diagnose(store, [rule], description, before, now, include_silent=True).findings
    finding: Finding = next(one for one in judged if one.id == rule.id)
    if afterwards and finding.experiment is not None:
        finding = verify_change(finding, rule, store, store.segments[-2], store.segments[-1]).finding
    return finding.verdict
