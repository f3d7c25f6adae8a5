"""Hold every playbook against a store: symptom, cause, rivals, gain, and the verdict that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvscope import signals
from kvscope.account import NO_FACTS, Facts, account, change
from kvscope.checks import Check
from kvscope.compare import NOTHING_SAID, Comparable, Said, choose, comparable, machine
from kvscope.coverage import coverage
from kvscope.errors import NotEnoughData
from kvscope.finding import (
    NOTICE,
    Diagnosis,
    Evidence,
    Experiment,
    Finding,
    Rival,
    SegmentSummary,
    Unknown,
    Verdict,
)
from kvscope.gain import estimate
from kvscope.judge import Pair, all_of, any_of, exclusion, judge
from kvscope.onset import cut_where_it_changed, symptom_onset
from kvscope.playbook_schema import Compare, Playbook
from kvscope.ranking import ranked
from kvscope.signals import significance
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.significance import Answer
from kvscope.sources.source import Description
from kvscope.store import Segment, Store

STATED = ("figures", "answers", "table")
"""Kinds of source whose numbers somebody wrote down: one stands for a run, and its error is not known."""
ON_WORD = "The figures are as stated, and their errors are not known: no more than possible."
GROWN = 0.25
"""A symptom worse by a quarter than before is part of what changed, though it was there already."""


def diagnose(
    store: Store,
    playbooks: Iterable[Playbook],
    description: Description,
    baseline: str | None = None,
    current: str | None = None,
    include_silent: bool = False,
    facts: Facts = NO_FACTS,
    said: Said = NOTHING_SAID,
) -> Diagnosis:
    """Judge all playbooks; without ``include_silent`` only what a person should look at is in the findings.

    A stream that nobody marked and that clearly stepped is cut where it did: before is then compared with after.

    Raises NotEnoughData when the store is empty and UsageError when a segment asked for does not exist.
    """
    if not store.segments:
        raise NotEnoughData(f"{description.target}: not a single sample; watch for longer")
    stepped = cut_where_it_changed(store) if baseline is None and current is None else ""
    stated = description.kind in STATED
    # Nobody's exporter can be at fault for what a person wrote down.
    rules = tuple(rule for rule in playbooks if not (stated and rule.triage == "trust"))
    if facts is not NO_FACTS:
        store.facts = facts
    judged = [_judge(rule, store, description, baseline, current, said) for rule in rules]
    findings = [finding for finding, _ in judged if include_silent or _worth_showing(finding)]
    shown, contradictions = ranked(findings)
    lines = (stepped, *(_told(finding) for finding, _ in judged), *(notice for _, notice in judged))
    notices = tuple(dict.fromkeys(notice for notice in lines if notice))
    sides = choose(store, Compare(), baseline, current)
    return Diagnosis(
        source=_source(description),
        segments=tuple(_summary(store, segment, description) for segment in store.segments),
        findings=shown,
        unknown=_unknown(rules, judged, store),
        notices=notices + contradictions,
        account=account(store, sides.current, facts),
        account_before=account(store, sides.baseline, facts) if sides.baseline else None,
        coverage=coverage(rules, [finding for finding, _ in judged]),
        account_change=change(store, sides.baseline, sides.current, facts) if sides.baseline else None,
    )


def _judge(
    rule: Playbook, store: Store, description: Description, baseline: str | None, current: str | None, said: Said
) -> tuple[Finding, str]:
    """Return the finding of one playbook and a notice about its segments."""
    pair = choose(store, rule.compare, baseline, current)
    fit = Comparable(pair)
    if rule.compare is not None:
        alone = rule.compare.optional and pair.baseline is None
        fit = fit if alone else comparable(pair, rule.compare, description.tags, description.kind, said)
    symptom = _judged(rule.symptom, pair, "symptom")
    causes, alternatives = _judged(rule.cause.checks, pair), _judged(rule.cause.any, pair)
    finding = Finding(
        id=rule.id,
        title=rule.title,
        verdict="silent",
        slug=rule.cause.slug,
        cause=rule.cause.says,
        evidence=symptom + causes + alternatives,
        notes=rule.notes,
        onset_s=pair.current.start_s if pair.baseline else None,
        baseline=pair.baseline.name if pair.baseline else "",
        current=pair.current.name,
        triage=rule.triage,
    )
    seen = all_of([one.answer for one in symptom])
    if seen == "no":
        return finding, ""
    if fit.problem or seen == "unknown":
        return replace(finding, verdict="needs_data", notes=_why(fit, symptom)), ""
    finding = replace(finding, rivals=(*_rivals(rule, pair), *fit.rivals, *machine(rule.id, pair)))
    verdict = _verdict(_holds(causes, alternatives), finding.rivals)
    if verdict == "likely" and description.kind in STATED:
        verdict, finding = "possible", replace(finding, notes=" ".join((finding.notes, ON_WORD)).strip())
    if verdict == "likely" and fit.doubts:
        verdict, finding = "possible", replace(finding, notes=" ".join((finding.notes, _on_trust(fit))).strip())
    if verdict == "needs_data":
        return replace(finding, verdict=verdict, notes=_why(fit, causes + alternatives)), fit.notice
    if verdict != "unexplained":
        gain = estimate(rule.gain, pair) if rule.gain else None
        advice = tuple(fix.text(description.engine) for fix in rule.fix)
        turns = tuple(turn for fix in rule.fix for turn in fix.turns())
        finding = replace(finding, gain=gain, experiment=_experiment(rule, pair), fix=advice, turns=turns)
    if pair.baseline is None:
        persists = _persists(rule, store, baseline, current)
        finding = replace(finding, onset_s=symptom_onset(rule.symptom, pair), persists=persists)
    return replace(finding, verdict=verdict), fit.notice


def _persists(rule: Playbook, store: Store, baseline: str | None, current: str | None) -> bool:
    """Whether a rule that judges one segment saw its whole symptom in the one before, too, and no better than now."""
    pair = choose(store, Compare(), baseline, current)
    checks = [check for check in rule.symptom if not check.compares]
    if pair.baseline is None or not checks:
        return False
    if not all(judge(check, Pair(store, pair.baseline)).answer == "yes" for check in checks):
        return False
    return not any(_worse(check, pair) for check in checks)


def _worse(check: Check, pair: Pair) -> bool:
    """Whether what a check reads went clearly further to the side it asks for than it was."""
    was, now = pair.before(check.signal), pair.now(check.signal)
    if isinstance(was, Missing) or isinstance(now, Missing):
        return False
    moved = significance.change(now, was, points=True)
    grew = moved.size if check.sense == ">=" else -moved.size
    return moved.sure and grew > GROWN * abs(was.value)


def _judged(checks: tuple[Check, ...], pair: Pair, role: str = "cause") -> tuple[Evidence, ...]:
    return tuple(judge(check, pair, "symptom" if role == "symptom" else "cause") for check in checks)


def _holds(causes: tuple[Evidence, ...], alternatives: tuple[Evidence, ...]) -> Answer:
    answers = [one.answer for one in causes]
    if alternatives:
        answers.append(any_of([one.answer for one in alternatives]))
    return all_of(answers)


def _verdict(cause: Answer, rivals: tuple[Rival, ...]) -> Verdict:
    if cause == "unknown":
        return "needs_data"
    if cause == "no":
        return "unexplained"
    return "likely" if all(rival.state == "excluded" for rival in rivals) else "possible"


def _rivals(rule: Playbook, pair: Pair) -> tuple[Rival, ...]:
    found = []
    for rival in rule.rivals:
        state, evidence = exclusion(_judged(rival.excluded_when, pair))
        found.append(Rival(rival.name, rival.says, state, evidence, rival.look))
    return tuple(found)


def _experiment(rule: Playbook, pair: Pair) -> Experiment | None:
    """Return the experiment with its predictions stated against today's numbers, not yet judged."""
    plan = rule.experiment
    if plan is None:
        return None
    predict = []
    for check in plan.predict:
        now = pair.now(check.signal)
        evidence = Evidence(check.name, check.signal, check.says, "unknown", role="prediction")
        if isinstance(now, Reading):
            evidence = replace(evidence, baseline=now.value, baseline_error=now.error, unit=now.unit)
        predict.append(evidence)
    return Experiment(plan.change, plan.hold, plan.run, plan.set, tuple(predict))


def _on_trust(fit: Comparable) -> str:
    """Say what a comparison rests on that nobody said, and how to say it."""
    return (
        f"Nobody says whether {', '.join(fit.doubts)} stayed the same: taken as unchanged, so no more than possible; "
        f"--same {','.join(fit.doubts)} says so."
    )


def _why(fit: Comparable, evidence: tuple[Evidence, ...]) -> str:
    """Say in one line why nothing can be told."""
    if fit.problem:
        return f"{fit.problem}; {fit.remedy}"
    for one in evidence:
        if one.answer == "unknown":
            reason = one.missing or f"the interval of {one.signal} spans the bound ({one.says})"
            return f"{reason}; {one.remedy or 'watch for longer'}"
    return ""


def _told(finding: Finding) -> str:
    """Return the line of what is worth knowing and no fault; empty where it is not so."""
    if finding.triage != NOTICE or finding.verdict not in ("likely", "possible"):
        return ""
    numbers = ", ".join(f"{one.signal} {one.value:.3g}" for one in finding.evidence if one.value is not None)
    return f"{finding.title}: {finding.cause} ({numbers})"


def _worth_showing(finding: Finding) -> bool:
    """Whether a person should see it: a rule that cannot be told is shown only when its whole symptom was seen.

    What nobody measured is listed among the unknown signals instead. What is no fault is told in a line.
    """
    if finding.triage == NOTICE:
        return False
    if finding.verdict != "needs_data":
        return finding.verdict != "silent"
    return all(one.answer == "yes" for one in finding.evidence if one.role == "symptom")


def _unknown(rules: tuple[Playbook, ...], judged: list[tuple[Finding, str]], store: Store) -> tuple[Unknown, ...]:
    """List the signals nobody supplied to a playbook that could not do without them, in asking order, once each."""
    found: dict[str, Unknown] = {}
    for rule, (finding, _) in zip(rules, judged, strict=True):
        if finding.verdict == "silent":
            continue
        segment = store.segment(finding.current)
        for name in _asked(rule, finding):
            reading = signals.compute(name, store, segment)
            if isinstance(reading, Missing) and name not in found:
                found[name] = Unknown(name, reading.reason, reading.remedy)
    return tuple(found.values())


def _asked(rule: Playbook, finding: Finding) -> tuple[str, ...]:
    """Return the signals a rule could not do without: its symptom's, and once that was seen all that it reads."""
    seen = [one for one in finding.evidence if one.role == "symptom"]
    if all(one.answer == "yes" for one in seen):
        return rule.signals()
    return tuple(one.signal for one in seen if one.missing)


def _summary(store: Store, segment: Segment, description: Description) -> SegmentSummary:
    values = {}
    for name in signals.names():
        reading = signals.compute(name, store, segment)
        if isinstance(reading, Reading):
            values[name] = (reading.value, reading.error, reading.unit)
    return SegmentSummary(segment.name, segment.start_s, segment.end_s, {**description.tags, **segment.tags}, values)


def _source(description: Description) -> dict[str, str]:
    return {
        "kind": description.kind,
        "target": description.target,
        "engine": description.engine,
        "version": description.version,
        **({"note": description.note} if description.note else {}),
    }
