"""A mark set in one terminal starts a segment in whatever watches an engine from another."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from kvscope.cli import run
from kvscope.sources import marks
from kvscope.sources.marks import MarksSource


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


def test_only_marks_after_the_watching_began_are_given_and_each_once(runtime: Path) -> None:
    marks.append("before", 1.0)
    source = MarksSource({"engine": "vllm"})
    assert source.poll().marks == ()
    marks.append("after", 2.0)
    (found,) = source.poll().marks
    assert (found.name, found.t, found.tags) == ("after", 2.0, {"engine": "vllm"})
    assert source.poll().marks == ()


def test_the_file_is_private_and_a_half_written_line_waits(runtime: Path) -> None:
    path = marks.append("one", 1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    source = MarksSource({})
    with path.open("a") as file:
        file.write('{"mark": "two"')
    assert source.poll().marks == ()
    with path.open("a") as file:
        file.write(', "t": 3.0}\nnonsense\n')
    assert [mark.name for mark in source.poll().marks] == ["two"]


def test_the_command_leaves_a_mark(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mark", "after"]) == 0
    assert json.loads((runtime / marks.FILE).read_text())["mark"] == "after"
    assert "marked for whoever watches" in capsys.readouterr().out
    assert run(["mark", " "]) == 2


def test_a_mark_carries_what_a_person_knows_of_the_segment(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    source = MarksSource({"engine": "vllm"})
    marks.append("after", 1_800_000_000.0, {"workload": "chat"})
    (mark,) = source.poll().marks
    assert mark.tags == {"engine": "vllm", "workload": "chat"}
