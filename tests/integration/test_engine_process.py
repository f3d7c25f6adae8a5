"""The built-in engine as a process: served, controlled, watched from outside, killed, and still explained."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvscope.cli import run
from kvscope.errors import SourceError, UsageError
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine

pytest.importorskip("torch")
LOAD = {"load.clients": "4", "load.documents": "1", "load.document_tokens": "512", "load.new_tokens": "16"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltinEngine]:
    directory = tmp_path_factory.mktemp("runtime")
    patch = pytest.MonkeyPatch()
    patch.setenv("KVSCOPE_RUNTIME_DIR", str(directory))
    started = BuiltinEngine.start(LOAD, ("--threads", "1", "--pool-mib", "64"))
    wait_for(lambda: tokens(started) > 100)
    yield started
    started.stop()
    patch.undo()


def wait_for(ready: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def tokens(engine: BuiltinEngine) -> float:
    samples = open_target(str(engine.ring)).poll().samples
    return max((sample.value for sample in samples if sample.metric == "tokens.generated"), default=0.0)


def test_its_files_are_private(engine: BuiltinEngine) -> None:
    assert engine.ring is not None
    for path in (engine.ring, engine.ring.with_suffix(".token")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(engine.ring.parent.stat().st_mode) & 0o077 == 0


def test_page_and_recorder_tell_the_same(engine: BuiltinEngine) -> None:
    page = open_target(f"http://127.0.0.1:{engine.port}")
    seen = {sample.metric: sample.value for sample in page.poll().samples}
    assert page.describe().kind == "kvscope"
    assert abs(seen["tokens.generated"] - tokens(engine)) < 500
    assert 1 <= seen["sched.running"] <= 4


@pytest.mark.parametrize("whose", ["engine", "launcher"])
def test_it_is_found_by_its_own_pid_and_by_its_launchers(engine: BuiltinEngine, whose: str) -> None:
    pid = engine.pid if whose == "engine" else os.getpid()
    described = open_target(str(pid)).describe()
    assert described.alive
    assert described.engine == "kvscope-engine"


def test_control_needs_the_token(engine: BuiltinEngine) -> None:
    url = f"http://127.0.0.1:{engine.port}/control"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        json_headers = {**headers, "Content-Type": "application/json"}
        request = urllib.request.Request(url, b'{"set": {"kernels": "block"}}', json_headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert refused.value.code == 401
        refused.value.close()


def test_knobs_change_live_and_a_wrong_one_is_named(engine: BuiltinEngine) -> None:
    assert engine.control is not None
    assert engine.control.set({"policy": "combined", "kernels": "block"}, "after")["policy"] == "combined"
    with pytest.raises(UsageError, match="did you mean 'kernels'"):
        engine.control.set({"kernel": "block"})
    assert engine.control.knobs()["kernels"] == "block"
    wait_for(lambda: any(mark.name == "after" for mark in open_target(str(engine.ring)).poll().marks))


def test_a_report_of_it_is_written(engine: BuiltinEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(engine.pid), "--duration", "1", "--format", "json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    assert report["source"]["kind"] == "ring"
    assert report["segments"][-1]["signals"]["right_token_share"]["value"] == 1.0


def test_it_is_explained_after_kill_9(capsys: pytest.CaptureFixture[str]) -> None:
    started = BuiltinEngine.start(LOAD, ("--threads", "1", "--pool-mib", "64"))
    try:
        wait_for(lambda: tokens(started) > 20)
        os.kill(started.pid, signal.SIGKILL)
        wait_for(lambda: started.exit_code() is not None)
        assert started.exit_code() == -signal.SIGKILL
        assert run(["diagnose", str(started.pid), "--format", "json"]) in (0, 1)
        said = capsys.readouterr()
        assert "died" in said.err
        assert json.loads(said.out)["segments"]
    finally:
        started.stop()


def test_it_ends_when_its_launcher_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    code = (
        "import sys, json; from kvscope.sources.builtin import BuiltinEngine\n"
        "engine = BuiltinEngine.start(json.loads(sys.argv[1]), ('--threads', '1', '--pool-mib', '64'))\n"
        "print(engine.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(LOAD)], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        launcher.kill()
        launcher.wait()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def test_a_start_that_fails_says_why() -> None:
    with pytest.raises(UsageError, match=r"expected one of .*combined, full"):
        BuiltinEngine.start({"policy": "nothing"})
    with pytest.raises((SourceError, UsageError), match="pool of 0 MiB holds 0"):
        BuiltinEngine.start({}, ("--pool-mib", "0"))
