"""The shortest list of ways lets most rules speak, each counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.cli import run
from kvscope.coverage import shortest
from kvscope.finding import Light

CAPTURE = Path(__file__).parents[2] / "samples/captures/admission-limited/pages.jsonl.gz"


def test_each_step_counts_only_what_the_steps_before_it_do_not_bring() -> None:
    lights = [Light("a", ("1", "2", "3")), Light("b", ("2", "3")), Light("c", ("4",)), Light("d", ("1", "4"))]
    assert shortest(lights) == (Light("a", ("1", "2", "3")), Light("c", ("4",)))
    assert shortest(lights, 1) == (Light("a", ("1", "2", "3")),)
    assert shortest([]) == ()


def test_coverage_says_how_many_rules_can_speak_and_what_would_add_most(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["coverage", str(CAPTURE)]) == 0
    text = capsys.readouterr().out
    assert "rules can speak about" in text
    assert "\n  1. " in text


def test_a_format_that_is_none_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["coverage", str(CAPTURE), "--format", "yaml"]) == 2
    assert "expected text or json" in capsys.readouterr().err
