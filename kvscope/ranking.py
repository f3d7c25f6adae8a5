"""The order of findings: what says that numbers lie first, then the strongest verdict, then the largest gain; what
another explains folds beneath it, and no two findings advise opposite actions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from kvscope.finding import VERDICT_ORDER, Finding
from kvscope.knobs import opposite
from kvscope.playbook_schema import Triage

_SHOWN = ("confirmed", "likely", "possible")


def ranked(findings: list[Finding]) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Return findings in showing order, each folded one right behind the one that explains it, and notices."""
    ordered = sorted(findings, key=_strength)
    by_id = {finding.id: finding for finding in ordered}
    roots = {finding.id: _root(finding, by_id) for finding in ordered}
    shown: list[Finding] = []
    for finding in ordered:
        if roots[finding.id] == finding.id:
            beneath = [other for other in ordered if roots[other.id] == finding.id and other is not finding]
            shown.append(replace(finding, explains=tuple(other.id for other in beneath)))
            shown += [replace(other, explained_by=finding.id) for other in beneath]
    return _without_contradictions(shown)


Strength = tuple[bool, int, int, bool, bool, bool, float, int, str]
WORTHLESS = 1.03
"""A bound below this says that the cause is real and costs next to nothing."""
_TRIAGE = ("", *get_args(Triage))
_SPEED = ("host", "transfer", "admission", "preemption", "prefix", "kernel")


def _strength(finding: Finding) -> Strength:
    """Sort key, strongest first: what was not there before goes first, wrong answers before slow ones.

    A rival that a number keeps open weighs more than one that nobody measured; an experiment has answered them all.
    """
    gain = finding.gain
    worth = (gain.expected or gain.bound or 0.0) if gain else 0.0
    lies = finding.triage == "trust" and finding.verdict in _SHOWN
    disputed = finding.verdict != "confirmed" and any(rival.state == "open" for rival in finding.rivals)
    shown = finding.verdict in _SHOWN
    wrong = finding.triage == "quality" and shown
    idle = gain is not None and gain.bound is not None and gain.bound < WORTHLESS and finding.triage in _SPEED
    return (
        not lies,
        0 if shown and not finding.persists else 1 if shown else 2,
        VERDICT_ORDER.index(finding.verdict),
        not wrong,
        idle,
        disputed,
        -worth,
        _TRIAGE.index(finding.triage),
        finding.id,
    )


def _root(finding: Finding, by_id: dict[str, Finding], seen: frozenset[str] = frozenset()) -> str:
    """Follow open rivals to the strongest finding that investigates one, also through findings that explain nothing
    themselves, and, where several findings name the same cause, to the one that says most of it; a circle ends where
    it began.
    """
    if finding.id in seen:
        return finding.id
    seen |= {finding.id}
    head = _head(finding, by_id)
    if head is not finding:
        return _root(head, by_id, seen)
    ends = [
        by_id[_root(by_id[rival.look], by_id, seen)]
        for rival in finding.rivals
        if rival.state != "excluded" and rival.look in by_id and by_id[rival.look].slug != finding.slug
    ]
    stronger = [other for other in ends if other.verdict in _SHOWN and _strength(other) < _strength(finding)]
    return min(stronger, key=_strength).id if stronger else finding.id


def _head(finding: Finding, by_id: dict[str, Finding]) -> Finding:
    """Return the finding that speaks for a cause: the strongest verdict, then one that compares two segments."""
    same = [one for one in by_id.values() if one.slug == finding.slug and one.verdict in _SHOWN]
    if finding.verdict not in _SHOWN:
        return finding
    return min(same, key=lambda one: (_strength(one)[:6], not one.baseline, _strength(one)))


def _without_contradictions(findings: list[Finding]) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    advised: dict[str, tuple[str, str]] = {}
    kept: list[Finding] = []
    notices: list[str] = []
    for finding in findings:
        clash = ""
        steps = finding.experiment.set if finding.experiment and finding.verdict in _SHOWN else ()
        steps = (*((f"kvscope {knob}", value) for knob, value in steps), *finding.turns)
        for knob, value in steps:
            said, by = advised.get(knob, (value, ""))
            name = knob.removeprefix("kvscope ")
            if opposite(said, value):
                clash = f"{finding.id}: its step ({name} = {value}) is withheld, {by} asks for {name} = {said}"
        if clash:
            notices.append(clash)
            note = " ".join(part for part in (finding.notes, clash) if part)
            finding = replace(finding, experiment=None, fix=(), turns=(), notes=note)
        else:
            advised.update({knob: (value, finding.id) for knob, value in steps if knob not in advised})
        kept.append(finding)
    return tuple(kept), tuple(notices)
