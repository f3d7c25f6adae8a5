"""Verdicts after an experiment: only what moves further than noise is confirmed, and an unchanged engine never is."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from kvscope.diagnose import diagnose
from kvscope.errors import NotEnoughData, UsageError
from kvscope.experiment import choose, rule_of
from kvscope.playbook import load_all
from kvscope.sources.source import Description
from kvscope.verification import Verification, verify_change
from kvscope.verification_report import EXIT_CODES, as_json, as_text
from tests.synthetic import State, Stretch, store_of, stream

PLAYBOOKS = load_all()
SLOW = State(shares={"gather": 0.5, "linear": 0.3})
FAST = State(shares={"linear": 0.6}, tokens_per_s=2 * SLOW.tokens_per_s)
ABOUT = Description("ring", "synthetic", "kvscope-engine")


def verified(states: Sequence[State], *, seed: int = 0, noise: float = 0.01) -> Verification:
    """The change from the first to the last state; what lies between are controls."""
    names = ["before", *(f"control-{index}" for index in range(len(states) - 2)), "after"]
    stretches = [Stretch(name, state) for name, state in zip(names, states, strict=True)]
    store = store_of(stream(stretches, noise=noise, seed=seed))
    first, *controls, last = store.segments
    found = diagnose(store, PLAYBOOKS, ABOUT, current=first.name, include_silent=True)
    finding = choose(found, PLAYBOOKS, "access-bound")
    return verify_change(finding, rule_of(PLAYBOOKS, finding.id), store, first, last, controls)


def test_a_change_that_does_what_was_predicted_is_confirmed() -> None:
    found = verified([SLOW, SLOW, FAST])
    assert found.outcome == "confirmed"
    assert found.finding.verdict == "confirmed"
    assert "Keep the change." in as_text(found)
    assert json.loads(as_json(found))["outcome"] == "confirmed"
    assert EXIT_CODES[found.outcome] == 0


def test_a_change_that_does_nothing_is_refuted() -> None:
    found = verified([SLOW, SLOW, SLOW])
    assert (found.outcome, EXIT_CODES[found.outcome]) == ("refuted", 1)
    assert "Do not keep" in as_text(found)


def test_what_the_controls_do_too_is_no_effect() -> None:
    found = verified([SLOW, FAST, FAST])
    assert (found.outcome, EXIT_CODES[found.outcome]) == ("cannot tell", 4)
    assert all(one.floor for one in found.predicted)
    assert "reaches across the bound" in found.why


def test_the_gain_is_held_against_the_mean_of_what_was_not_changed() -> None:
    slower = State(shares={"gather": 0.5, "linear": 0.3}, tokens_per_s=SLOW.tokens_per_s / 1.2)
    alone, drifted = verified([SLOW, FAST]), verified([SLOW, slower, FAST])
    assert alone.measured_gain == pytest.approx(2.0, rel=0.05)
    assert drifted.measured_gain == pytest.approx(2.0 * 1.1, rel=0.05)
    assert alone.measured_error is not None
    assert drifted.measured_error is not None
    assert drifted.measured_error > 2.0 * 0.09 > alone.measured_error


def test_without_a_control_the_parts_of_each_segment_are_the_floor() -> None:
    found = verified([SLOW, FAST])
    assert found.outcome == "confirmed"
    assert found.controls == ()
    assert all(one.detectable and one.floor is not None and one.floor < one.detectable for one in found.predicted)


@pytest.mark.parametrize("seed", range(20))
def test_an_unchanged_engine_is_never_told_to_keep_a_change(seed: int) -> None:
    assert verified([SLOW, SLOW, SLOW], seed=seed, noise=0.2).outcome != "confirmed"


def test_a_healthy_engine_has_nothing_to_verify_unless_a_playbook_is_named() -> None:
    store = store_of(stream([Stretch("now", State(waiting=0, running=6))]))
    found = diagnose(store, PLAYBOOKS, ABOUT, include_silent=True)
    with pytest.raises(NotEnoughData, match="name a playbook"):
        choose(found, PLAYBOOKS)
    assert choose(found, PLAYBOOKS, "access-bound").verdict == "silent"
    with pytest.raises(UsageError, match="did you mean 'access-bound'"):
        choose(found, PLAYBOOKS, "access-bond")
    with pytest.raises(UsageError, match="turns no knob"):
        choose(found, PLAYBOOKS, "client-bound")
