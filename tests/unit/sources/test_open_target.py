"""Whatever names a target opens it; whatever does not is told what it lacks."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from kvscope.errors import SourceError, UsageError
from kvscope.recording import Recorder
from kvscope.sources import find, open_target
from probes.ring import RingWriter
from probes.runtime import ENV_DIR
from probes.sample import Sample

SCRAPE = json.dumps({"t": 1.0, "text": "vllm:num_requests_running 1\n"}) + "\n"
FIXTURE = '{"kvscope_recording": 1}\n{"t": 1, "s": {"sched.running": 1}}\n'


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "runtime"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv(ENV_DIR, str(directory))
    return directory


def ring_of(directory: Path, pid: int, ticks: int, **header: object) -> Path:
    """A recorder that another process wrote, as far as its name and its header say."""
    with patch("probes.ring.os.getpid", return_value=pid), patch("probes.ring.process_start_ticks", return_value=ticks):
        writer = RingWriter({"engine": "e", **header}, ["t", "sched.running"], ["t"], directory=directory)
    writer.write_step([1.0, 2.0])
    writer.close()
    return writer.path


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.jsonl", SCRAPE.encode(), "series"),
        ("a.dat", gzip.compress(SCRAPE.encode(), mtime=0), "series"),
        ("b.jsonl", FIXTURE.encode(), "recording"),
        ("b.txt", gzip.compress(FIXTURE.encode(), mtime=0), "recording"),
        ("c.db", b"# HELP x y\nvllm:num_requests_running 1\n", "series"),
    ],
)
def test_a_file_is_opened_by_what_is_in_it_not_by_its_name(
    tmp_path: Path, name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    source = open_target(str(tmp_path / name))
    assert source.describe().kind == kind
    assert [sample.value for sample in source.poll().samples if sample.metric == "sched.running"] == [1]
    source.close()


def test_a_database_and_a_recorder_open_too(tmp_path: Path, runtime: Path) -> None:
    recorder = Recorder(tmp_path / "r")
    recorder.add([Sample("sched.running", 1.0, 1.0)])
    recorder.close()
    source = open_target(str(tmp_path / "r"))
    assert source.describe().kind == "recording"
    source.close()
    source = open_target(str(ring_of(runtime, 99999999, 7)))
    assert source.describe().kind == "ring"
    source.close()


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\x00\x01\x02binary", b"\x7fELF\x00", b"<html></html>", b"just words here\n"]
)
def test_a_file_of_something_else_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="thing"):
        open_target(str(path))


def test_a_mistyped_path_names_the_nearest_file(tmp_path: Path) -> None:
    (tmp_path / "steady.jsonl").write_text(SCRAPE)
    with pytest.raises(SourceError, match=r"no such file.*did you mean 'steady\.jsonl'"):
        open_target(str(tmp_path / "stedy.jsonl"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="a folder without files"):
        open_target(str(tmp_path / "empty"))


def test_a_pid_opens_its_own_recorder(runtime: Path) -> None:
    writer = RingWriter({"engine": "e"}, ["t", "sched.running"], ["t"], directory=runtime)
    source = open_target(str(os.getpid()))
    assert source.describe().target == str(writer.path)
    source.close()


def test_the_machine_of_a_living_engine_is_read_along(runtime: Path) -> None:
    RingWriter({"engine": "e"}, ["t", "sched.running"], ["t"], directory=runtime).write_step([1.0, 2.0])
    source = open_target(str(os.getpid()), machine=True)
    assert {sample.metric for sample in source.poll().samples} >= {"sched.running", "host.process_rss"}
    source.close()


def test_the_launchers_pid_opens_the_engines_recorder(runtime: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticks = find.process_start_ticks(child.pid)
        assert ticks is not None
        path = ring_of(runtime, child.pid, ticks)
        source = open_target(str(os.getpid()))
        assert source.describe().target == str(path)
        source.close()
    finally:
        child.communicate(b"\n")


def test_a_dead_launcher_is_found_in_the_recorder_itself(runtime: Path) -> None:
    path = ring_of(runtime, 99999998, 7, launcher={"pid": 99999999, "start_ticks": 5})
    source = open_target("99999999")
    assert source.describe().target == str(path)
    source.close()


def test_a_reused_pid_is_not_taken_for_the_engine_that_had_it(runtime: Path) -> None:
    ring_of(runtime, os.getpid(), 1)
    with pytest.raises(SourceError, match="an earlier process with this pid"):
        open_target(str(os.getpid()))


def test_a_dead_pid_without_a_recorder_says_where_was_looked(runtime: Path) -> None:
    with pytest.raises(SourceError, match=f"process 99999999: not running.*{runtime}"):
        open_target("99999999")


def test_a_pid_without_a_recorder_that_listens_is_told_how_to_be_attached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SourceError, match=r"it listens on port \d+.*give 127\.0\.0\.1:") as caught:
            open_target(str(os.getpid()))
        assert str(port) in str(caught.value) or "port" in str(caught.value)


def test_an_impossible_address_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="expected http"):
        open_target("ftp://host/metrics")
