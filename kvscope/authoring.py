"""Writing playbooks: a file to begin with, and the proof that a rule gives the verdicts its recordings are kept for."""

from __future__ import annotations

from pathlib import Path

from kvscope.diagnose import diagnose
from kvscope.errors import UsageError
from kvscope.finding import Finding
from kvscope.playbook_schema import Playbook
from kvscope.verification import verify_change
from kvscope.whole import read_whole

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
