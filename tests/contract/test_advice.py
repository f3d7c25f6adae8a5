"""Advice: no two playbooks can tell somebody to turn one setting both ways, and every setting named is a real one."""

from __future__ import annotations

from itertools import combinations

import pytest

from kvscope.finding import Experiment, Finding
from kvscope.knobs import opposite
from kvscope.playbook import load_all
from kvscope.playbook_schema import Playbook
from kvscope.ranking import ranked

PLAYBOOKS = load_all()
PAIRS = list(combinations(PLAYBOOKS, 2))


def firing(rule: Playbook) -> Finding:
    """A finding of the rule as it would be shown, advice and all."""
    plan = rule.experiment
    return Finding(
        rule.id,
        rule.title,
        "likely",
        rule.cause.slug,
        rule.cause.says,
        experiment=Experiment(plan.change, set=plan.set) if plan else None,
        fix=tuple(fix.text() for fix in rule.fix),
        turns=turns(rule),
        triage=rule.triage,
    )


def turns(rule: Playbook) -> tuple[tuple[str, str], ...]:
    return tuple(turn for fix in rule.fix for turn in fix.turns())


def advised(finding: Finding) -> list[tuple[str, str]]:
    steps = finding.experiment.set if finding.experiment else ()
    return [*((f"kvscope {knob}", value) for knob, value in steps), *finding.turns]


def test_no_pair_of_playbooks_can_turn_a_setting_both_ways() -> None:
    apart = 0
    for one, other in PAIRS:
        shown, notices = ranked([firing(one), firing(other)])
        first, second = (advised(finding) for finding in shown)
        for knob, value in first:
            for again, against in second:
                assert not (knob == again and opposite(value, against)), (one.id, other.id, knob)
        apart += bool(notices)
    assert apart, "some playbooks do ask for opposite things, and one of the two is then withheld with a notice"


@pytest.mark.parametrize("rule", PLAYBOOKS, ids=lambda rule: rule.id)
def test_a_playbook_does_not_contradict_itself(rule: Playbook) -> None:
    asked: dict[str, str] = {}
    for knob, value in advised(firing(rule)):
        assert not opposite(asked.setdefault(knob, value), value), knob


@pytest.mark.parametrize("rule", PLAYBOOKS, ids=lambda rule: rule.id)
def test_the_built_in_engine_has_every_knob_that_is_named(rule: Playbook) -> None:
    knobs = pytest.importorskip("engine.knobs", reason="the built-in engine is not installed")
    for knob, _ in advised(firing(rule)):
        if knob.startswith("kvscope "):
            assert knob.removeprefix("kvscope ") in knobs.names()


@pytest.mark.parametrize("rule", PLAYBOOKS, ids=lambda rule: rule.id)
def test_settings_are_shown_for_the_engine_that_was_read(rule: Playbook) -> None:
    for fix in rule.fix:
        own = [engine for engine, _ in fix.settings]
        if "vllm" in own and len(own) > 1:
            assert "vLLM" in fix.text("vllm")
            assert "SGLang" not in fix.text("vllm")
