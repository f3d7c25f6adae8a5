"""A target that writes escapes, direction characters and markup wherever it may: no view of ours obeys any of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope import report
from kvscope.cli import run
from kvscope.playbook import load_all
from kvscope.recording import Recorder
from kvscope.session import Session
from kvscope.sources import open_target
from kvscope.tui.app import KvscopeApp
from kvscope.tui.ordering import as_json, plain
from probes.ring import RingWriter

EVIL = (
    "\x1b]0;PWNED\x07\x1b[31mred\x1b[2J\u202eabc\u2066\x9b31m[/bold] [@click=app.quit()]m[/] <script>alert(1)</script>"
)
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"


def obeyed(text: str) -> list[str]:
    """Return the characters in a text that a terminal would obey, or that would turn its lines round."""
    return sorted({repr(char) for char in text if (ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0})


def turned(text: str) -> list[str]:
    return sorted({repr(char) for char in text if char in BIDI})


def page(t: float, labels: str) -> str:
    lines = [f"vllm:num_requests_running{{{labels}}} 6", f"vllm:num_requests_waiting{{{labels}}} 3"]
    lines.append(f"vllm:kv_cache_usage_perc{{{labels}}} 0.9")
    for name, rate in (("prompt", 4000), ("generation", 900)):
        lines.append(f"vllm:{name}_tokens_total{{{labels}}} {rate * t:.0f}")
    lines.append(f'vllm:request_success_total{{{labels},finished_reason="{EVIL}"}} {t:.0f}')
    lines.append(f'vllm:cache_config_info{{{labels},block_size="16",cache_dtype="{EVIL}"}} 1')
    for metric, mean in (("time_to_first_token_seconds", 0.1), ("e2e_request_latency_seconds", 4.0)):
        lines += [f'vllm:{metric}_bucket{{{labels},le="{le}"}} {4 * t:.0f}' for le in ("0.1", "1.0", "+Inf")]
        lines += [f"vllm:{metric}_count{{{labels}}} {4 * t:.0f}", f"vllm:{metric}_sum{{{labels}}} {4 * t * mean:.0f}"]
    return "\n".join([*lines, f"{EVIL} is no sample"])


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of each kind whose every text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    labels = f'model_name="{EVIL}",engine="0"'
    series = [json.dumps({"t": 1000.0 + t, "text": page(t, labels)}) for t in range(30)]
    series.insert(12, json.dumps({"t": 1011.5, "status": None, "error": EVIL}))
    (folder / "series.jsonl").write_text("\n".join(series) + "\n")
    header = {"kvscope_recording": 1, "source": {"engine": EVIL, "version": EVIL}, "tags": {EVIL: EVIL, "model": EVIL}}
    lines = [json.dumps(header), json.dumps({"mark": EVIL, "t": 1000.0, "tags": {"policy": EVIL, EVIL: "x"}})]
    lines += [json.dumps({"t": 1000.0 + t, "s": {"sched.running": 4, "tokens.generated": 900 * t}}) for t in range(30)]
    lines.insert(12, json.dumps({"mark": f"after {EVIL}", "t": 1010.0, "tags": {"kernels": EVIL}}))
    (folder / "recording.jsonl").write_text("\n".join(lines) + "\n")
    place: dict[str, object] = {"pid": EVIL, "tid": EVIL, "args": {"device": EVIL, "stream": EVIL}}
    kernels = [
        {"ph": "X", "cat": "kernel", "name": f"{EVIL}{n % 3}", "ts": 100 * n, "dur": 90, **place} for n in range(200)
    ]
    (folder / "trace.json").write_text(json.dumps({"deviceProperties": [{"name": EVIL}], "traceEvents": kernels}))
    writer = RingWriter(
        {"engine": EVIL, "version": EVIL, "model": EVIL, "device": EVIL, "tags": {EVIL: EVIL}},
        ["t", "sched.running", "tokens.generated", f"kv.bytes_per_layer[{EVIL}]"],
        ["t", "latency.ttft"],
        directory=folder,
    )
    for n in range(200):
        writer.write_step([float(n), 4.0, 90.0 * n, 1e6])
        if n == 100:
            writer.write_event({"kind": "mark", "mark": EVIL, "tags": {"policy": EVIL}, "t": 100.0})
    writer.close()
    return {
        "series": folder / "series.jsonl",
        "recording": folder / "recording.jsonl",
        "trace": folder / "trace.json",
        "ring": writer.path,
    }


KINDS = ("series", "recording", "trace", "ring")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", report.names())
def test_no_report_obeys_it(kind: str, form: str, targets: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(targets[kind]), "--format", form, "--all"]) in (0, 1, 4)
    said = capsys.readouterr()
    assert obeyed(said.out) == obeyed(said.err) == []
    assert turned(said.out) == turned(said.err) == []
    assert "<script>alert" not in said.out or form not in ("html", "markdown")


@pytest.mark.parametrize("kind", ["series", "recording", "ring"])
@pytest.mark.parametrize("command", ["compare", "export", "metrics"])
def test_no_other_command_obeys_it(
    kind: str, command: str, targets: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(targets[kind])
    words = {"compare": ["compare", path, path], "export": ["export", path], "metrics": ["metrics"]}[command]
    assert run(words) in (0, 1, 2, 3, 4)
    said = capsys.readouterr()
    assert obeyed(said.out) == obeyed(said.err) == []
    assert turned(said.out) == turned(said.err) == []


def test_what_somebody_types_or_names_a_file_is_not_obeyed_when_it_is_said_back(
    targets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    named = tmp_path / "\x1b[31m\u202e.jsonl"
    named.write_bytes(targets["series"].read_bytes())
    assert run(["mark", "\x1b[31m\u202eafter"]) == 0
    assert run(["compare", str(named), str(named)]) in (0, 1)
    said = capsys.readouterr()
    assert obeyed(said.out + said.err) == turned(said.out + said.err) == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_recording_holds_it(kind: str, targets: dict[str, Path], tmp_path: Path) -> None:
    source = open_target(str(targets[kind]))
    recorder = Recorder(tmp_path / "run.db", source.describe())
    recorder.write(source.poll())
    recorder.close()
    source.close()
    stored = (tmp_path / "run.db").read_bytes().decode("utf-8", "replace")
    assert "\x1b[" not in stored
    assert "\x1b]" not in stored
    assert turned(stored) == []


@pytest.mark.parametrize("kind", ["series", "recording", "ring"])
async def test_no_screen_obeys_it(kind: str, targets: dict[str, Path]) -> None:
    session = Session(open_target(str(targets[kind])), load_all())
    session.poll()
    session.diagnose_now()
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(160, 48)) as pilot:
        for key in ("escape", *"123456789", "question_mark", "escape", "n", "escape"):
            await pilot.press(key)
            app.poller.drain()
            await pilot.pause()
            shown = plain(app)
            assert obeyed(shown) == []
            assert turned(shown) == []
            assert app.broken is None
        assert app.view is not None
        assert obeyed(as_json(app.view)) == []
        assert turned(as_json(app.view)) == []
    session.close()


@pytest.mark.parametrize("target", [EVIL, f"http://127.0.0.1:1/{EVIL}", f"127.0.0.1:1,{EVIL}", f"prom+http://{EVIL}"])
def test_an_error_quotes_it_and_obeys_nothing(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", target]) in (2, 3)
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert obeyed(said.err) == turned(said.err) == []
