"""Each fault, run for seconds, leaves the counters of its truth; with its fix they are no longer all there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

pytest.importorskip("torch")

from kvscope import faults
from kvscope.faults import Fault
from tests.faults import WARM_STEPS, Run, start

AT_ONCE_S, AT_MOST_S = 0.7, 10.0


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


@pytest.mark.parametrize("name", faults.names())
def test_a_fault_leaves_the_counters_of_its_truth(name: str) -> None:
    fault = faults.get(name)
    run = measured(fault, {})
    spent = 0.0
    while spent < AT_MOST_S:
        run.go(AT_ONCE_S, 10_000)
        spent += AT_ONCE_S
        if not told(run, fault):
            return
    raise AssertionError(f"{name}: {told(run, fault)}")


@pytest.mark.parametrize("name", [name for name in faults.names() if faults.get(name).fix])
def test_its_fix_ends_it(name: str) -> None:
    fault = faults.get(name)
    run = measured(fault, fault.fix)
    run.go(2 * AT_ONCE_S, 10_000)
    assert told(run, fault)
