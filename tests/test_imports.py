"""What each way in must not load: cold starts stay short, and a machine without torch can still attach and diagnose."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
import sys
{action}
loaded = [name for name in {forbidden!r} if name in sys.modules]
if loaded:
    sys.exit("loaded: " + ", ".join(loaded))
"""
HELP = """
from kvscope.cli import run
try:
    run({argv!r})
except SystemExit as ended:
    assert not ended.code, ended.code
"""
HEAVY = ("torch", "textual", "numpy", "plotext", "numba", "engine", "rich")


def assert_not_loaded(action: str, forbidden: tuple[str, ...]) -> None:
    code = PROBE.format(action=action, forbidden=forbidden)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [[], ["diagnose"], ["attach"], ["demo"], ["serve"], ["record"], ["replay"]])
def test_help_loads_nothing_heavy(command: list[str]) -> None:
    assert_not_loaded(HELP.format(argv=[*command, "--help"]), HEAVY)


def test_diagnosing_a_saved_series_loads_no_torch_and_no_textual() -> None:
    action = "from kvscope.cli import run\nrun(['diagnose', 'samples/quiet/vllm-healthy.jsonl'])"
    assert_not_loaded(action, ("torch", "textual", "numba", "engine", "rich"))


@pytest.mark.parametrize(
    "module",
    [
        "kvscope.session",
        "kvscope.sources",
        "kvscope.diagnose",
        "kvscope.report.text",
        "kvscope.store",
        "kvscope.signals",
    ],
)
def test_the_core_loads_neither_torch_nor_textual(module: str) -> None:
    assert_not_loaded(f"import {module}", ("torch", "textual", "engine", "rich"))


def test_the_dashboard_loads_no_torch() -> None:
    assert_not_loaded("import kvscope.tui.app", ("torch", "engine", "numba"))


def test_the_engine_loads_no_observer() -> None:
    assert_not_loaded("import engine.process", ("kvscope", "textual", "rich"))


def test_probes_load_only_the_standard_library() -> None:
    names = ("numpy", "torch", "yaml", "psutil", "kvscope", "engine", "textual")
    assert_not_loaded("import probes.ring, probes.ring_reader, probes.recorder", names)
