"""How each real engine is started here, asked and read. Paths come from the environment; nothing is downloaded.

``KVSCOPE_LLAMA_SERVER`` and ``KVSCOPE_LLAMA_MODEL`` name llama.cpp's server and a GGUF file (a model cut to a few
layers keeps cases short); ``KVSCOPE_VLLM_PYTHON`` and ``KVSCOPE_VLLM_MODEL`` a Python with vLLM for the CPU and a model
folder; ``KVSCOPE_DYNAMO_PYTHON`` and ``KVSCOPE_DYNAMO_MODEL`` the same for NVIDIA Dynamo's front end and mocker.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.lab.scenario import BUDGET, CAP, KV_TYPE, POOL, REUSE, Load, Settings

START_S = 420.0
STOP_S = 2.0
BLOCK = 16
EVENTS = 2
"""Added to the port: where KV events are published."""
DEVICE_TOKENS = 262_144
"""KV tokens of the device that Dynamo's mocker simulates here, whatever pool a case gives it (its own default)."""


class Command(NamedTuple):
    """One process of an engine: its command line, what is added to the environment, and how long the next one waits."""

    argv: list[str]
    env: dict[str, str]
    settles_s: float = 0.0


@dataclass(frozen=True)
class Engine:
    """How to start an engine on ``port`` and how to speak with it."""

    name: str
    commands: Callable[[Settings, Load, int, Path], list[Command]]
    body: Callable[[Sequence[int], int, Settings], dict[str, Any]]
    path: str
    pages: tuple[int, ...] = (0,)
    """Added to the port: where pages are served. Several are kept as one, as two processes are watched."""
    side: str = ""
    """Where it says what its page does not, as JSON."""
    publishes: bool = False
    """Whether it publishes KV events."""


@dataclass
class Server:
    """A running engine."""

    engine: Engine
    port: int
    settings: Settings
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started_s: float = 0.0
    argvs: list[list[str]] = field(default_factory=list)

    def page(self) -> str:
        """Return its metrics as they stand now; OSError where nobody answers."""
        texts = []
        for beyond in self.engine.pages:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port + beyond}/metrics", timeout=5) as answer:
                texts.append(answer.read().decode())
        return "".join(texts)

    def side(self) -> str | None:
        """Return what stands beside its page, None where it has no such place; OSError where nobody answers."""
        if not self.engine.side:
            return None
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{self.engine.side}", timeout=5) as answer:
            return str(answer.read().decode())

    def scheduled(self) -> tuple[float, float]:
        """Return seconds that its threads ran, and seconds that they could have run and got no core."""
        ran, waited = 0, 0
        for parent in self.processes:
            with contextlib.suppress(psutil.Error):
                started = psutil.Process(parent.pid)
                for one in (started, *started.children(recursive=True)):
                    for path in Path(f"/proc/{one.pid}/task").glob("*/schedstat"):
                        with contextlib.suppress(OSError):
                            fields = path.read_text().split()
                            ran, waited = ran + int(fields[0]), waited + int(fields[1])
        return ran / 1e9, waited / 1e9

    def stop(self) -> None:
        """End the processes that were started, by their own groups."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def start(name: str, settings: Settings, load: Load, port: int, folder: Path, core: str = "") -> Server:
    """Start an engine and wait until it answers a request; RuntimeError with the log's end where it does not."""
    engine = ENGINES[name]
    server, begun = Server(engine, port, settings), time.monotonic()
    with (folder / "server.log").open("wb") as log:
        for argv, env, settles_s in engine.commands(settings, load, port, folder):
            pinned = ["taskset", "-c", core, *argv] if core else argv
            server.argvs.append(argv)
            server.processes.append(
                subprocess.Popen(
                    pinned, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **env}, start_new_session=True
                )
            )
            time.sleep(settles_s)
    while time.monotonic() - begun < START_S:
        if any(process.poll() is not None for process in server.processes):
            break
        if _answers(server):
            server.started_s = time.monotonic() - begun
            return server
        time.sleep(0.3)
    server.stop()
    tail = (folder / "server.log").read_text(errors="replace")[-600:]
    raise RuntimeError(f"{name} did not start: {tail}")


def _answers(server: Server) -> bool:
    body = json.dumps(server.engine.body([300, 301, 302, 303], 2, server.settings)).encode()
    url = f"http://127.0.0.1:{server.port}{server.engine.path}"
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            answer.read()
        return bool(server.page())
    except OSError:
        return False


def _llamacpp(settings: Settings, load: Load, port: int, folder: Path) -> list[Command]:
    slots, pool = int(settings[CAP]), int(settings[POOL])
    argv = [os.environ["KVSCOPE_LLAMA_SERVER"], "-m", os.environ["KVSCOPE_LLAMA_MODEL"], "--host", "127.0.0.1"]
    argv += ["--port", str(port), "-t", "1", "--metrics", "--slots", "--no-webui", "-np", str(slots), "-c", str(pool)]
    argv += ["-b", str(settings[BUDGET]), "-ub", str(min(512, int(settings[BUDGET]))), "--cache-ram", "0"]
    if pool // slots < 512:
        argv.append("-kvu")
    if settings[KV_TYPE] != "f16":
        argv += ["-fa", "on", "-ctk", str(settings[KV_TYPE]), "-ctv", str(settings[KV_TYPE])]
    if load.shared and settings[KV_TYPE] == "f16":
        argv += ["-fa", "on"]
    return [Command(argv, {})]


def _llamacpp_body(prompt: Sequence[int], tokens: int, settings: Settings) -> dict[str, Any]:
    wanted = {"n_predict": tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    return {"prompt": list(prompt), "cache_prompt": bool(settings[REUSE]), **wanted}


def _vllm(settings: Settings, load: Load, port: int, folder: Path) -> list[Command]:
    argv = [os.environ["KVSCOPE_VLLM_PYTHON"], "-m", "vllm.entrypoints.cli.main", "serve"]
    argv += [os.environ["KVSCOPE_VLLM_MODEL"], "--served-model-name", "m", "--load-format", "dummy"]
    argv += ["--skip-tokenizer-init", "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
    argv += ["--enforce-eager", "--disable-uvicorn-access-log", "--max-num-seqs", str(settings[CAP])]
    blocks = max(4, int(settings[POOL]) // 32)
    argv += ["--block-size", "32", "--num-gpu-blocks-override", str(blocks)]
    argv += ["--max-model-len", str(min(8192, 32 * (blocks - 1))), "--max-num-batched-tokens", str(settings[BUDGET])]
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{port + EVENTS}"}
    argv += ["--kv-events-config", json.dumps(events)]
    if not settings[REUSE]:
        argv.append("--no-enable-prefix-caching")
    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    return [Command(argv, {**env, "VLLM_LOG_STATS_INTERVAL": "5", "OMP_NUM_THREADS": "1"})]


def _openai_body(prompt: Sequence[int], tokens: int, settings: Settings) -> dict[str, Any]:
    wanted = {"max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    return {"model": "m", "prompt": list(prompt), **wanted}


def _dynamo(settings: Settings, load: Load, port: int, folder: Path) -> list[Command]:
    store = folder / "kv"
    shutil.rmtree(store, ignore_errors=True)
    env = {"DYN_FILE_KV": str(store), "DYN_DISCOVERY_BACKEND": "file", "DYN_REQUEST_PLANE": "tcp"}
    env |= {"DYN_EVENT_PLANE": "zmq", "HF_HUB_OFFLINE": "1", "DYN_HOST_IP": "127.0.0.1"}
    python = os.environ["KVSCOPE_DYNAMO_PYTHON"]
    front = [python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port)]
    worker = [python, "-m", "dynamo.mocker", "--model-path", os.environ["KVSCOPE_DYNAMO_MODEL"], "--model-name", "m"]
    worker += ["--num-gpu-blocks-override", str(max(4, int(settings[POOL]) // BLOCK)), "--block-size", str(BLOCK)]
    worker += ["--max-num-seqs", str(settings[CAP]), "--max-num-batched-tokens", str(settings[BUDGET])]
    if not settings[REUSE]:
        worker.append("--no-enable-prefix-caching")
    worker += ["--planner-profile-data", str(_step_times(folder / "steps.npz"))]
    worker += ["--zmq-kv-events-ports", str(port + EVENTS)]
    # The worker first: the front end then finds it at once.
    page = {"DYN_SYSTEM_PORT": str(port + 1), "DYN_SYSTEM_HOST": "127.0.0.1"}
    return [Command(worker, {**env, **page}, 1.5), Command(front, env)]


def _step_times(path: Path) -> Path:
    """Write the mocker's step times (ms) as a profile, so that they follow tokens and not the share of the pool in use.

    Without a profile a decode step takes 5.74 + 54.01 p - 25.74 p² ms, p the share of the pool in use: a larger pool
    alone makes steps faster there, which no device does. Here p is the share of ``DEVICE_TOKENS``, and the pool is only
    what it is on a device: room. Prefill keeps its formula (n new tokens: 4.21e-7 n² + 0.01518 n + 16.5 ms).
    """
    prompts = [float(round(16384 ** (k / 200))) for k in range(201)]
    held = [0.0, *(16 * (DEVICE_TOKENS / 16) ** (k / 200) for k in range(201))]
    shares = [tokens / DEVICE_TOKENS for tokens in held]
    arrays = {
        "prefill_isl": ([len(set(prompts))], sorted(set(prompts))),
        "prefill_ttft_ms": ([len(set(prompts))], [4.21e-7 * n * n + 0.01518 * n + 16.5 for n in sorted(set(prompts))]),
        "decode_active_kv_tokens": ([len(held)], held),
        "decode_context_length": ([2], [1.0, float(DEVICE_TOKENS)]),
        "decode_itl": ([len(held), 2], [ms for p in shares for ms in 2 * [5.74 + 54.01 * p - 25.74 * p * p]]),
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, (shape, values) in arrays.items():
            about = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {tuple(shape)}, }}".ljust(117) + "\n"
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(about)) + about.encode()
            file.writestr(f"{name}.npy", head + struct.pack(f"<{len(values)}d", *values))
    return path


def _words_body(prompt: Sequence[int], tokens: int, settings: Settings) -> dict[str, Any]:
    text = " ".join(f"w{3 + token % 4000}" for token in prompt)
    return {**_openai_body((), tokens, settings), "prompt": text}


ENGINES = {
    "llamacpp": Engine("llamacpp", _llamacpp, _llamacpp_body, "/completion", side="/slots"),
    "vllm": Engine("vllm", _vllm, _openai_body, "/v1/completions", publishes=True),
    "dynamo": Engine("dynamo", _dynamo, _words_body, "/v1/completions", (0, 1), publishes=True),
}


def tokens_of(rng: random.Random, count: int) -> list[int]:
    """Return ``count`` random token ids that every model here has."""
    return [rng.randrange(300, 40000) for _ in range(count)]
