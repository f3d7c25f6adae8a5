"""Every wrong way to use the command line ends in one line that says what is wrong, and in its exit code."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvscope.cli import command_names, run
from kvscope.recording import Recorder

HEALTHY = "samples/quiet/vllm-healthy.jsonl"
CAPPED = "samples/recordings/admission-capped.likely.jsonl"


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@contextmanager
def serving(page: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; nothing may be on stdout."""
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("kvscope: ")
    return said.err


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["diagnos", "x"], 2, "did you mean 'diagnose'"),
        (["diagnose"], 2, "required: TARGET"),
        (["diagnose", HEALTHY, "--format", "jsn"], 2, "did you mean 'json'"),
        (["diagnose", HEALTHY, "--fail-on", "maybe"], 2, "expected one of confirmed, likely, possible, unexplained"),
        (["diagnose", HEALTHY, "--segments", "all"], 2, "expected BASELINE,CURRENT"),
        (["diagnose", HEALTHY, "--segments", "al,all"], 2, "did you mean 'all'"),
        (["diagnose", HEALTHY, "--interval", "0"], 2, "expected 0.1 to 60 seconds"),
        (["diagnose", "http://127.0.0.1:1"], 3, "nothing listens there"),
        (["diagnose", "4194303"], 3, "not running"),
        (["diagnose", "samples/quiet/vllm-healty.jsonl"], 3, "did you mean 'vllm-healthy.jsonl'"),
        (["replay", "nothing.db"], 2, "no such file"),
        (["replay", HEALTHY, "--speed", "-1"], 2, "expected 0 or more"),
        (["playbooks", "show", "admission-caped"], 2, "did you mean 'admission-capped'"),
        (["serve", "--set", "policy"], 2, "expected NAME=VALUE"),
        (["demo", "--act", "1"], 2, "at least 5 seconds"),
    ],
)
def test_a_mistake_is_one_line_and_its_exit_code(
    argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == code
    assert says in line_of(capsys)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (b"", "the page is empty"),
        (b"# TYPE node_load1 gauge\nnode_load1 1\n", "node_load1"),
        (b"<html><body>hello</body></html>", "expected"),
        (b"\x00\xff\x01\x02" * 100, "nothing in the answer is a metric"),
    ],
)
def test_a_page_of_something_else_is_refused(page: bytes, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(page) as url:
        assert run(["diagnose", url, "--duration", "1"]) == 3
    assert says in line_of(capsys)


@pytest.mark.parametrize("command", ["record", "export", "figures"])
def test_no_device_and_not_what_is_read_is_written_over(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a device is replaced by a file, everybody else's writes to it go there."""
    pipe, read = tmp_path / "pipe", tmp_path / "read.jsonl"
    os.mkfifo(pipe)
    shutil.copy(HEALTHY, read)
    ways = {
        "record": lambda path: ["record", str(read), "-o", path],
        "export": lambda path: ["export", str(read), "--csv", path],
        "figures": lambda path: ["figures", "new", path],
    }
    assert run([*ways[command](str(pipe)), "--force"]) == 2
    assert "no regular file; expected a file to write" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    if command != "figures":
        (tmp_path / "link").symlink_to(read)
        assert run([*ways[command](str(tmp_path / "link")), "--force"]) == 2
        assert "this is what is read" in capsys.readouterr().err
    assert read.read_bytes() == Path(HEALTHY).read_bytes()


def test_what_another_recorder_writes_is_not_replaced_under_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "running.db"
    recorder = Recorder(path)
    before = path.stat().st_ino
    assert run(["record", HEALTHY, "-o", str(path), "--force"]) == 2
    assert "another recorder is writing it" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".new")] == []
    assert path.stat().st_ino == before
    recorder.close()
    assert run(["record", HEALTHY, "-o", str(path), "--force"]) == 0
    assert path.stat().st_ino != before


def test_names_that_a_terminal_would_obey_are_told_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[31m.db"
    assert run(["record", HEALTHY, "-o", str(path)]) == 0
    assert run(["mark", "a\x1b[31m\u202eb"]) == 0
    told = capsys.readouterr()
    assert path.exists()
    assert "\x1b" not in told.out + told.err
    assert "\u202e" not in told.out


@pytest.mark.parametrize("release", ["9" * 5000, "\u00b2", "0." + "9" * 10])
def test_a_release_is_of_few_digits_or_none(release: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = "samples/configs/qwen3-8b.json"
    assert run(["plan", config, "--engine", f"vllm@{release}"]) in (0, 2)
    assert "fault of kvscope" not in capsys.readouterr().err


def test_a_finding_sets_the_exit_code_and_fail_on_decides(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", CAPPED, "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == 1
    assert [(one["id"], one["verdict"], one["slug"]) for one in report["findings"]] == [
        ("admission-capped", "likely", "admission_limited")
    ]
    assert run(["diagnose", CAPPED, "--fail-on", "confirmed"]) == 0


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_what_is_no_fault_is_told_and_fails_nothing(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", "samples/recordings/tier-serves-prefixes.likely.jsonl", *more]) == 0
    assert "Prefixes are served from a slower tier, not from the pool: " in capsys.readouterr().out


def test_a_healthy_target_has_no_findings_and_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", HEALTHY, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["findings"] == []
    assert [segment["name"] for segment in report["segments"]] == ["all"]


def test_a_baseline_target_is_compared_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", CAPPED, "--baseline", HEALTHY, "--format", "json"]) in (0, 1)
    names = [segment["name"] for segment in json.loads(capsys.readouterr().out)["segments"]]
    assert {"baseline", "current"} <= set(names)


def test_a_misspelt_playbook_names_file_line_and_nearest_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("playbooks/admission-capped.yaml").read_text().replace("\nsymptom:", "\nsymptoms:", 1)
    path = tmp_path / "admission-capped.yaml"
    path.write_text(text)
    assert run(["playbooks", "check", str(path)]) == 2
    said = line_of(capsys)
    assert "admission-capped.yaml:" in said
    assert "did you mean 'symptom'" in said


def test_a_truncated_series_is_read_as_far_as_it_goes_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Path(HEALTHY).read_text()
    path = tmp_path / "cut.jsonl"
    path.write_text(whole[: int(len(whole) * 0.6)])
    assert run(["diagnose", str(path)]) == 0
    assert "cut.jsonl" in capsys.readouterr().err


def test_settings_say_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config" / "kvscope" / "kvscope.toml"
    file.parent.mkdir(parents=True)
    file.write_text('interval = 2.0\nfail_on = "possible"\n')
    monkeypatch.setenv("KVSCOPE_FAIL_ON", "confirmed")
    assert run(["config"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert str(file) in lines["interval"]
    assert "environment KVSCOPE_FAIL_ON" in lines["fail_on"]
    assert lines["duration"].endswith("default")


def test_a_wrong_setting_names_file_and_nearest_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config" / "kvscope" / "kvscope.toml"
    file.parent.mkdir(parents=True)
    file.write_text("intervall = 2.0\n")
    assert run(["config"]) == 2
    assert "did you mean 'interval'" in line_of(capsys)


def test_the_catalogue_is_printed_with_its_prometheus_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metrics"]) == 0
    assert "kvscope_kv_usage_ratio" in capsys.readouterr().out


def test_every_command_has_a_summary_of_one_line() -> None:
    import importlib

    for name in command_names():
        doc = importlib.import_module(f"kvscope.commands.{name}").__doc__ or ""
        assert doc.splitlines()[0].endswith((".", "!")), name
        assert "TODO" not in doc


def test_a_baseline_recorded_later_is_compared_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for baseline, target in ((CAPPED, HEALTHY), (HEALTHY, CAPPED)):
        run(["diagnose", target, "--baseline", baseline, "--format", "json"])
        segments = {one["name"]: one for one in json.loads(capsys.readouterr().out)["segments"]}
        assert segments["baseline"]["end_s"] <= segments["current"]["start_s"]
        assert segments["current"]["signals"]
        assert segments["baseline"]["signals"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_its_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in command_names())
    assert "fail-on" in told
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=told, text=True, check=True)


def test_help_groups_the_commands_and_each_shows_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--help"], ["attach", "--help"]):
        with pytest.raises(SystemExit):
            run(argv)
    told = capsys.readouterr().out
    assert "watch an engine:" in told
    assert all(f"  {name} " in told for name in command_names())
    assert "kvscope attach localhost:8000 --wait" in told


def test_attach_waits_for_an_engine_only_as_long_as_it_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attach", "http://127.0.0.1:9", "--wait", "0.05"]) == 3
    assert "127.0.0.1:9" in capsys.readouterr().err


def test_a_promise_is_judged_or_said_not_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", HEALTHY, "--slo", "ttft=1s"]) == 0
    assert "promised p95 1.00 s: not to be told" in capsys.readouterr().out
    assert run(["diagnose", HEALTHY, "--slo", "tftt=1s"]) == 2
    assert "did you mean 'ttft'" in capsys.readouterr().err
