"""The figures of the probes' benchmark become a result, and what is above its budget is a warning."""

from __future__ import annotations

import pytest

from kvscope.bench.overhead import result_of
from kvscope.cli import run

STEP = {"pairs": 1500, "step_s": 5.9e-3, "row_s": 7e-5, "row_mean_s": 1e-4}


def test_within_the_budgets_nothing_warns() -> None:
    found = result_of({**STEP, "ratio": 0.9951, "low": 0.9921, "high": 0.9984, "off_s": 0.69e-6}, 3000)
    assert found.warns == ()
    numbers = {one.name: one.value for one in found.quantities}
    assert numbers["throughput_on_to_off"] == 0.9951
    assert numbers["off_share"] == pytest.approx(0.69e-6 / 5.9e-3)


def test_what_is_above_its_budget_warns() -> None:
    found = result_of({**STEP, "ratio": 0.9511, "low": 0.9421, "high": 0.9584, "off_s": 3e-5}, 3000)
    assert len(found.warns) == 2


def test_too_few_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "overhead", "--steps", "5"]) == 2
    assert "expected at least 100" in capsys.readouterr().err
