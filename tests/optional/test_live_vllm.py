"""A real vLLM on this machine: the plugin's rows, a profiler trace, and a restart in the middle of a recording.

Opt-in, since it needs an installed vLLM (CPU is enough) with this project installed beside it, and two to four minutes:

    pip install --no-deps -e .                                   # in vLLM's environment, for the plugin
    KVSCOPE_VLLM=/path/to/venv/bin/vllm pytest tests/optional/test_live_vllm.py
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvscope import signals
from kvscope.signals.accounting import PARTS
from kvscope.signals.reading import Reading
from kvscope.sources import open_target
from kvscope.store import Store
from probes.ring_reader import RingReader, find_rings

VLLM = os.environ.get("KVSCOPE_VLLM", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not VLLM, reason="set KVSCOPE_VLLM to the vllm command of an environment with vLLM in it"),
]
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 8192,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TOKEN_BYTES = 6 * 2 * 2 * 64 * 2
START_S, CAP = 180, 4


@dataclass
class Server:
    """One start of vLLM; ``pid`` is the server's own."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, prompt: list[int], tokens: int) -> int:
        """Generate; returns the number of output tokens."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        answer = json.loads(self.post("/v1/completions", body))
        return int(answer["usage"]["completion_tokens"])

    def load(self, requests: int, length: int, tokens: int, clients: int) -> int:
        """Send requests from so many clients at once; returns the output tokens of all."""
        jobs, done = [[3 + (7 * i + k) % 4000 for k in range(length)] for i in range(requests)], []

        def client() -> None:
            while jobs:
                done.append(self.ask(jobs.pop(), tokens))

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done)

    def post(self, path: str, body: object = None) -> bytes:
        data = json.dumps(body).encode() if body is not None else b""
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, head)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return bytes(answer.read())

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        # vLLM is three processes in one session of their own; a killed server must not leave the others.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, how)
        self.process.wait(30)


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path / "run"))
    servers: list[Server] = []

    def run(*options: str, port: int = 0) -> Server:
        port = port or _free_port()
        command = [VLLM, "serve", str(model), "--served-model-name", "tiny", "--load-format", "dummy"]
        command += ["--skip-tokenizer-init", "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
        command += ["--max-model-len", "4096", "--max-num-seqs", str(CAP), "--enforce-eager", *options]
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }
        with (tmp_path / "vllm.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        servers.append(Server(process, port))
        _wait_healthy(servers[-1], tmp_path / "vllm.log")
        return servers[-1]

    yield run
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_healthy(server: Server, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert server.process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=2).close()
            return
        time.sleep(1)
    raise AssertionError(f"vLLM did not start in {START_S} s: {log.read_text()[-2000:]}")


def kvscope(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kvscope", *words], capture_output=True, text=True, check=False)


def rows() -> tuple[list[dict[str, float]], list[dict[str, float]], RingReader]:
    reader = RingReader(find_rings()[0])
    steps = [dict(zip(reader.columns, values, strict=True)) for _, values in reader.steps()]
    return steps, [dict(zip(reader.request_columns, values, strict=True)) for _, values in reader.requests()], reader


def test_the_plugin_records_every_step_of_a_server_bound_by_its_cap(start: Start) -> None:
    server = start("--enable-logging-iteration-details", "--kv-cache-metrics")
    tokens = server.load(requests=24, length=200, tokens=40, clients=12)
    found = kvscope("diagnose", str(server.pid), "--duration", "3", "--format", "json")
    steps, requests, reader = rows()
    with closing(reader):
        assert reader.header["engine"] == "vllm"
        assert reader.header["kv_groups"] == {"attention": 6}
    last = steps[-1]
    assert last["tokens.generated"] == tokens
    assert (last["tokens.prompt"], last["requests.finished"]) == (24 * 200, 24)
    # A row without a latency is a block that was evicted.
    assert sum(math.isfinite(row["latency.e2e"]) for row in requests) == 24
    assert last["kv.bytes_per_token_assumed"] == TOKEN_BYTES
    assert max(step["kv.resident_bytes"] for step in steps) > CAP * 200 * TOKEN_BYTES
    assert last["sched.cap_bound_steps"] > 0.5 * last["batch.steps"]
    assert last["sched.kv_bound_steps"] == 0
    assert last["time.step"] == pytest.approx(last["time.prefill"] + last["time.decode"])
    assert found.returncode in (0, 1), found.stderr
    report = json.loads(found.stdout)
    assert report["source"]["engine"] == "vllm"
    assert report["segments"][0]["signals"]["generation_tokens_per_s"]["value"] > 0


def test_a_pool_that_is_too_small_is_what_binds(start: Start) -> None:
    server = start("--enable-logging-iteration-details", "--num-gpu-blocks-override", "8", "--max-model-len", "600")
    server.load(requests=12, length=300, tokens=40, clients=8)
    last = rows()[0][-1]
    assert last["sched.kv_bound_steps"] > last["sched.cap_bound_steps"]


def test_a_restart_in_the_middle_of_a_recording_makes_no_wrong_rate(start: Start, tmp_path: Path) -> None:
    first = start()
    path = tmp_path / "restart.db"
    command = [sys.executable, "-m", "kvscope", "record", f"127.0.0.1:{first.port}", "-o", str(path)]
    recording = subprocess.Popen([*command, "--duration", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not path.exists():
        assert recording.poll() is None, recording.communicate()[1].decode()
        time.sleep(0.2)
    began = time.monotonic()
    tokens = first.load(requests=16, length=64, tokens=64, clients=4)
    ring = find_rings()[0]
    first.stop(signal.SIGKILL)
    second = start(port=first.port)
    tokens += second.load(requests=8, length=64, tokens=64, clients=4)
    time.sleep(2)
    seconds = time.monotonic() - began
    recording.terminate()
    recording.communicate(timeout=30)
    store = Store()
    with closing(open_target(str(path))) as source:
        poll = source.poll()
    assert [mark.name for mark in poll.marks if mark.name.startswith("restart")] == ["restart-1"]
    store.add(poll.samples)
    rate = signals.compute("generation_tokens_per_s", store, store.segments[0])
    assert isinstance(rate, Reading)
    # What was generated between the last scrape before the kill and the kill itself is lost, never invented.
    assert 0 < rate.value <= 1.02 * tokens / (seconds - 3)
    dead = kvscope("diagnose", str(ring), "--format", "json")
    assert dead.returncode in (0, 1), dead.stderr
    assert "died" in dead.stdout


def test_a_trace_of_its_worker_is_accounted_for(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    options: dict[str, Any] = {"profiler": "torch", "torch_profiler_dir": str(folder)}
    server = start("--profiler-config", json.dumps(options))
    server.post("/start_profile")
    server.load(requests=4, length=600, tokens=8, clients=4)
    server.post("/stop_profile")
    store = Store()
    with closing(open_target(str(next(folder.glob("rank0*.json.gz"))))) as source:
        assert source.describe().engine == "vllm"
        store.add(source.poll().samples)
    found = {name: signals.compute(name, store, store.segments[0]) for name in (*PARTS, "unaccounted_share")}
    values = [share.value for share in found.values() if isinstance(share, Reading)]
    assert len(values) == len(found)
    assert sum(values) == pytest.approx(1.0)
    left = found["unaccounted_share"]
    assert isinstance(left, Reading)
    assert left.value <= 0.10
