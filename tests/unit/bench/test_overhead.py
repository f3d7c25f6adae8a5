"""The figures of the probes' benchmark become a result, and what is above its budget is a warning."""

from __future__ import annotations

import pytest

from kvscope.bench.overhead import result_of
from kvscope.cli import run
from kvscope.errors import SourceError

SAID = """throughput with probes on / off: {ratio} (95 % interval {low} to {high})
  from 1500 pairs of decode steps, 5.91 ms each
off: 52 guards × 4.1 ns + 10 timestamps × 48 ns = 0.69 µs a step, {off} % of 5.9 ms
"""


def test_within_the_budgets_nothing_warns() -> None:
    found = result_of(SAID.format(ratio="0.9951", low="0.9921", high="0.9984", off="0.0117"), 3000)
    assert found.warns == ()
    numbers = {one.name: one.value for one in found.quantities}
    assert numbers["throughput_on_to_off"] == 0.9951
    assert numbers["off_s_per_step"] == pytest.approx(0.69e-6)


def test_what_is_above_its_budget_warns() -> None:
    found = result_of(SAID.format(ratio="0.9511", low="0.9421", high="0.9584", off="0.5"), 3000)
    assert len(found.warns) == 2


def test_a_benchmark_that_says_something_else_is_an_error() -> None:
    with pytest.raises(SourceError, match="expected its three figures"):
        result_of("Traceback", 3000)


def test_too_few_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "overhead", "--steps", "5"]) == 2
    assert "expected at least 100" in capsys.readouterr().err
