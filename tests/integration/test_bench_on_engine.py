"""The load benchmark on the engine itself: a server that streams real tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope.cli import run

pytest.importorskip("torch")
pytest.importorskip("numba")
from kvscope.sources.builtin import BuiltinEngine

LOAD = ("--mix", "100:64-256", "--clients", "2", "--requests", "4", "--output-tokens", "8", "--format", "json")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltinEngine]:
    patch = pytest.MonkeyPatch()
    patch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    started = BuiltinEngine.start(
        {"load.clients": "0"}, ("--threads", "1", "--pool-mib", "32", "--max-context", "1024")
    )
    try:
        yield started
    finally:
        started.stop(keep_recorder=False)
        patch.undo()


@pytest.mark.slow
def test_a_load_run_measures_it(engine: BuiltinEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    assert run(["bench", "load", f"http://127.0.0.1:{engine.port}", *LOAD, "-o", str(path)]) == 0
    report = json.loads(capsys.readouterr().out)
    numbers = {one["name"]: one["value"] for one in report["quantities"]}
    assert numbers["c2.failed_share"] == 0
    assert 0 < numbers["c2.ttft_p50_s"] < numbers["c2.e2e_p50_s"]
    assert json.loads(path.read_text()) == report
