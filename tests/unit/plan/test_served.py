"""A server or its log gives the settings; the count stands beside what it reports."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope.cli import run

LOG = "samples/logs/vllm-0.25.0-h200.log"
PAGE = """# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="fp8",num_gpu_blocks="93112",kv_cache_size_tokens="1489792"} 1.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
"""


class Served(http.server.BaseHTTPRequestHandler):
    """A page of vLLM's, and the route that names its model."""

    root = ""

    def do_GET(self) -> None:
        pages = {
            "/metrics": PAGE,
            "/v1/models": json.dumps({"data": [{"id": "m", "root": self.root, "max_model_len": 40000}]}),
        }
        page = pages.get(self.path)
        self.send_response(200 if page else 404)
        self.end_headers()
        self.wfile.write((page or "").encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_logs_pool_is_counted_beside_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", LOG, "--config", "samples/configs/qwen3-8b.json", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine"] == "vllm 0.25.0"
    assert (found["context"], found["kv_dtype"]) == (40000, "fp8_e4m3")
    assert found["reported"]["pool_tokens"] == 1489792
    assert found["per_gpu"]["pool_tokens"] == pytest.approx(1489792, rel=0.001)
    assert found["per_gpu"]["max_concurrency"] == pytest.approx(37.24, abs=0.05)


def test_a_log_that_names_a_model_that_is_not_here_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", LOG]) == 2
    assert "expected --config FILE beside it" in capsys.readouterr().err


def test_a_servers_own_settings_are_taken(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    Served.root = str(Path("samples/configs/qwen3-8b.json").resolve())
    assert run(["plan", address, "--memory", "102.3GiB", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine"].startswith("vllm")
    assert found["context"] == 40000
    assert found["reported"]["pool_tokens"] == 1489792
    assert found["per_gpu"]["pool_tokens"] == pytest.approx(1489792, rel=0.001)


def test_a_server_that_does_not_answer_ends_in_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "http://127.0.0.1:9"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_a_model_is_found_in_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models--some--model"
    snapshot = folder / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    (snapshot / "config.json").write_text(Path("samples/configs/llama-3.1-8b.json").read_text())
    (snapshot / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 16060522496}}')
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert run(["plan", "some/model", "--context", "8K", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "some/model"
    assert found["weights"]["total_bytes"] == 16060522496
    assert run(["plan", "some/other", "--context", "8K"]) == 2
    assert "not in the local Hugging Face cache" in capsys.readouterr().err
