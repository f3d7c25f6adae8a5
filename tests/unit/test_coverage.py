"""The shortest list of ways lets most rules speak, each counted once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.cli import run
from kvscope.coverage import shortest
from kvscope.finding import Step, Waiting
from kvscope.signals.remedies import NOBODY

CAPTURE = Path(__file__).parents[2] / "samples/captures/admission-limited/pages.jsonl.gz"


def waiting(**needs: tuple[tuple[str, ...], ...]) -> list[Waiting]:
    return [Waiting(rule, ways) for rule, ways in needs.items()]


def test_each_step_counts_only_what_the_steps_before_it_do_not_bring() -> None:
    rules = waiting(r1=(("a",),), r2=(("a", "b"),), r3=(("a", "b"),), r4=(("c",),))
    assert shortest(rules) == (Step(("a",), ("r1", "r2", "r3")), Step(("c",), ("r4",)))
    assert shortest(rules, 1) == (Step(("a",), ("r1", "r2", "r3")),)
    assert shortest([]) == ()


def test_two_ways_that_only_together_let_rules_speak_are_one_step() -> None:
    rules = waiting(r1=(("a",), ("b",)), r2=(("a",), ("b",)), r3=(("a",), ("b",)), r4=(("c",),))
    assert shortest(rules) == (Step(("a", "b"), ("r1", "r2", "r3")), Step(("c",), ("r4",)))


def test_a_way_nobody_can_take_is_none() -> None:
    assert shortest(waiting(r1=((f"{NOBODY}it has none",),), r2=(("a",), (f"{NOBODY}it has none",)))) == ()


def test_coverage_says_how_many_rules_can_speak_and_what_would_add_most(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["coverage", str(CAPTURE), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert run(["coverage", str(CAPTURE)]) == 0
    text = capsys.readouterr().out
    assert f"{told['judged']} of {told['rules']} rules can speak about" in text
    added = [rule for step in told["steps"] for rule in step["rules"]]
    assert len(set(added)) == len(added)
    assert f"with all of these {told['judged'] + len(added)}:" in text
    assert f"+{len(told['steps'][0]['rules'])}" in text


def test_a_format_that_is_none_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["coverage", str(CAPTURE), "--format", "yaml"]) == 2
    assert "expected text or json" in capsys.readouterr().err
