"""The faults on disk are well formed, and the commands that use them say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kvscope import faults
from kvscope.cli import run
from kvscope.errors import UsageError
from probes.catalog import CATALOG

ROOT = Path(__file__).parents[2]
ASKED_FOR = {
    *("generic_kernel", "slow_selection", "static_reservation", "optimistic_coefficient", "tier_thrash"),
    *("tier_too_small", "host_link_slow", "decompress_in_prefill", "cold_too_coarse", "too_sparse"),
    *("policy_not_active", "block_too_large", "split_pools", "fragmentation", "multi_turn_eviction", "warming_up"),
    *("host_bound", "prefill_interference", "token_budget", "running_cap", "client_bound", "prefix_thrash"),
    *("compute_bound", "nothing_wrong", "recompiles"),
}


def test_every_fault_asked_for_is_there() -> None:
    assert set(faults.names()) >= ASKED_FOR


@pytest.mark.parametrize("name", faults.names())
def test_a_fault_names_its_cause_and_counters_of_the_catalogue(name: str) -> None:
    fault = faults.get(name)
    assert fault.says
    assert fault.slug.replace("_", "").isalpha()
    assert fault.truth
    for truth in fault.truth:
        assert truth.counter in CATALOG
        assert not truth.per or truth.per in CATALOG
        assert truth.holds(0.0) != truth.holds(1e12)


def test_an_unknown_fault_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'tier_thrash'"):
        faults.get("tier_trash")


@pytest.mark.parametrize("command", [["serve", "--fault", "nothing_rong"], ["knobs", "1", "--fault", "nothing_rong"]])
def test_the_commands_name_the_nearest_too(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 2
    assert "nothing_wrong" in capsys.readouterr().err


def test_reading_a_fault_imports_nothing_of_the_engine() -> None:
    code = (
        "import sys; from kvscope import faults; faults.get('host_bound')\n"
        "print([name for name in sys.modules if name in ('torch', 'numba') or name.split('.')[0] == 'engine'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", faults.names())
def test_every_severity_is_a_load_and_knobs_that_the_engine_takes(name: str) -> None:
    pytest.importorskip("torch")
    from engine import settings
    from engine.knobs import Knobs
    from engine.lab.workload import Load, RecallLoad

    for severity in faults.get(name).severities:
        _, load = settings.apply(Knobs(), Load(), dict(faults.get(name, severity).knobs))
        assert RecallLoad(load).load == load


def test_a_fault_says_which_severities_it_has() -> None:
    assert faults.get("running_cap").severities == ("mild", "clear", "severe")
    assert faults.get("running_cap", "severe").knobs["max_running"] == "1"
    with pytest.raises(UsageError, match="did you mean 'severe'"):
        faults.get("running_cap", "sever")


@pytest.mark.parametrize("name", [name for name in faults.names() if faults.get(name).fix])
def test_what_a_fix_turns_the_fault_sets(name: str) -> None:
    """Else a fault that is brought about on a mended engine would keep a part of the fix."""
    fault = faults.get(name)
    assert set(fault.fix) <= set(fault.knobs)
