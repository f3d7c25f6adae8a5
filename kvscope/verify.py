"""Check an experiment's outcome against what the finding predicted: confirmed, refuted, or not yet to be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvscope.compare import named
from kvscope.errors import UsageError
from kvscope.finding import Finding
from kvscope.judge import Pair, all_of, judge
from kvscope.playbook import load_all
from kvscope.playbook_schema import Playbook
from kvscope.store import Store


def verify(
    finding: Finding, store: Store, before: str, after: str, playbooks: Iterable[Playbook] | None = None
) -> Finding:
    """Judge the experiment's predictions from segment ``before`` to ``after``.

    All hold: ``confirmed``. Any fails: ``refuted``. Otherwise the verdict stands and the open predictions say why.
    """
    rule = next((one for one in playbooks or load_all() if one.id == finding.id), None)
    if rule is None or rule.experiment is None or finding.experiment is None:
        raise UsageError(f"{finding.id}: there is no experiment to verify")
    segments = store.segments
    pair = Pair(store, named(segments, after), named(segments, before))
    predict = tuple(judge(check, pair, "prediction") for check in rule.experiment.predict)
    note = held(rule, pair)
    answer = all_of([one.answer for one in predict])
    verdict = finding.verdict
    if not note and answer != "unknown":
        verdict = "confirmed" if answer == "yes" else "refuted"
    notes = " ".join(part for part in (finding.notes, note) if part)
    return replace(finding, verdict=verdict, experiment=replace(finding.experiment, predict=predict), notes=notes)


def held(rule: Playbook, pair: Pair) -> str:
    """Say which tag that had to stay the same did not (the knob the experiment turns may change), or nothing."""
    if rule.compare is None or pair.baseline is None or rule.experiment is None:
        return ""
    turned = {knob for knob, _ in rule.experiment.set} | {_TAG_OF.get(knob, "") for knob, _ in rule.experiment.set}
    before, now = pair.baseline.tags, pair.current.tags
    for tag in rule.compare.same:
        if tag not in turned and tag in before and tag in now and before[tag] != now[tag]:
            return f"Not verified: {tag} changed with it ({before[tag]}, then {now[tag]})."
    return ""


_TAG_OF = {"max_running": "cap"}
"""knob → the tag that carries it, where the names differ"""
