"""Each fault, run for seconds, leaves the counters of its truth; with its fix they are no longer all there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import process_time

import pytest

pytest.importorskip("torch")

from kvscope import faults
from kvscope.cli import run as cli
from kvscope.faults import Fault
from kvscope.sources.builtin import BuiltinEngine
from tests.faults import WARM_STEPS, Run, start

ROUND_STEPS, ROUND_S, AT_MOST_S = 40, 2.0, 30.0
"""A round is so many steps; the seconds, the processor's own, are for idle engines."""


def measured(fault: Fault, changes: Mapping[str, str]) -> Run:
    """An engine past its first steps, unless the fault lies in those."""
    run = start(fault, changes)
    if not fault.from_start:
        run.go(AT_MOST_S, WARM_STEPS)
    run.cut()
    return run


def told(run: Run, fault: Fault) -> dict[str, float]:
    """What does not hold of the fault's truth."""
    return {str(truth): run.value(truth) for truth in fault.truth if not truth.holds(run.value(truth))}


def rounds(run: Run) -> Iterator[None]:
    """Go on in rounds of new rows, all since the cut counted; a busy machine may spoil the first of them."""
    ends = process_time() + AT_MOST_S
    while process_time() < ends:
        run.go(ROUND_S, ROUND_STEPS)
        yield


@pytest.mark.parametrize("name", faults.names())
def test_a_fault_leaves_the_counters_of_its_truth(name: str) -> None:
    fault = faults.get(name)
    run = measured(fault, {})
    assert any(not told(run, fault) for _ in rounds(run)), f"{name}: {told(run, fault)}"


@pytest.mark.parametrize("name", [name for name in faults.names() if faults.get(name).fix])
def test_its_fix_ends_it(name: str) -> None:
    fault = faults.get(name)
    run = measured(fault, fault.fix)
    run.go(ROUND_S, ROUND_STEPS)
    assert any(told(run, fault) for _ in rounds(run))


def test_knobs_of_a_running_engine_are_shown_and_set(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    fault = faults.get("running_cap")
    engine = BuiltinEngine.start(fault.knobs, ("--threads", "1", "--pool-mib", "64"))
    try:
        assert cli(["knobs", str(engine.pid)]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert {"policy=combined", "max_running=2", "load.clients=6"} <= set(shown)
        assert cli(["knobs", str(engine.pid), "--set", "kept_share=0.5", "--mark", "more"]) == 0
        assert "kept_share=0.5  (was 0.25)" in capsys.readouterr().out
        assert cli(["knobs", str(engine.pid), "--fix", "running_cap"]) == 0
        assert "max_running=8  (was 2)" in capsys.readouterr().out
        assert cli(["knobs", str(engine.pid), "--fault", "tier_thrash"]) == 0
        said = capsys.readouterr()
        assert "promote_after=1  (was 0)" in said.out
        assert "--pool-mib 128" in said.err
        assert cli(["knobs", str(engine.pid), "--set", "polcy=full"]) == 2
        assert "did you mean 'policy'" in capsys.readouterr().err
    finally:
        engine.stop()
