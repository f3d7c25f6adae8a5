"""A real Alertmanager hears of a finding once, through ten minutes of noise around the bound, and of its end.

Opt-in, it takes 19 minutes: ``KVSCOPE_LIVE=1 python -m pytest tests/live/test_alertmanager.py``. Needs the program
``prometheus-alertmanager`` (``apt-get install prometheus-alertmanager``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.at_bound import BOUND, Server
from tests.live.test_prometheus_fleet import free_port

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("KVSCOPE_LIVE"), reason="live: set KVSCOPE_LIVE=1"),
    pytest.mark.skipif(not PROGRAM, reason="no alertmanager program"),
]
CLEAR_FAULT_S, NOISE_S, GONE_S = 150.0, 600.0, 330.0


class Engine(ThreadingHTTPServer):
    """Serves the page of a server at the bound."""

    def __init__(self, port: int) -> None:
        self.began_s = time.time()
        self.server = Server(self.share)
        super().__init__(("127.0.0.1", port), Handler)

    @staticmethod
    def share(t: float) -> float:
        return 0.9 if t < CLEAR_FAULT_S else BOUND if t < CLEAR_FAULT_S + NOISE_S else 0.0


class Handler(BaseHTTPRequestHandler):
    """Answers a scrape (GET), and takes down what an Alertmanager notifies of (POST)."""

    heard: list[dict[str, Any]]
    server: Engine

    def do_GET(self) -> None:
        self._answer(self.server.server.page(time.time() - self.server.began_s).encode())

    def do_POST(self) -> None:
        self.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(b"{}")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def alertmanager(where: Path, port: int, webhook: int) -> subprocess.Popen[bytes]:
    told = {"url": f"http://127.0.0.1:{webhook}/", "send_resolved": True}
    config = {
        "route": {"receiver": "us", "group_by": ["..."], "group_wait": "1s", "group_interval": "5s"},
        "receivers": [{"name": "us", "webhook_configs": [told]}],
    }
    (where / "alertmanager.yml").write_text(json.dumps(config))
    assert PROGRAM
    started = subprocess.Popen(
        [
            PROGRAM,
            f"--config.file={where / 'alertmanager.yml'}",
            f"--storage.path={where / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1):
                return started
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the alertmanager did not come up")


def test_one_alert_and_its_end_through_ten_minutes_of_noise_around_the_bound(tmp_path: Path) -> None:
    engine_port, manager_port = free_port(), free_port()
    Handler.heard = []
    with ExitStack() as stack:
        engine = Engine(engine_port)
        stack.callback(engine.server_close)
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        stack.callback(engine.shutdown)
        manager = alertmanager(tmp_path, manager_port, engine_port)
        stack.callback(manager.wait)
        stack.callback(manager.terminate)
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "kvscope", "watch", f"http://127.0.0.1:{engine_port}"),
                *("--alertmanager", f"http://127.0.0.1:{manager_port}", "--record", str(tmp_path / "before")),
                *("--duration", str(CLEAR_FAULT_S + NOISE_S + GONE_S), "--label", "severity=page"),
            ],
            capture_output=True,
            check=False,
        )
        time.sleep(15.0)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    capped = [one for one in events if one["id"] == "admission-capped"]
    assert [one["event"] for one in capped if one["event"] != "changed"] == ["began", "ended"], ran.stderr
    noise_ends = engine.began_s + CLEAR_FAULT_S + NOISE_S
    assert capped[0]["t_s"] < engine.began_s + CLEAR_FAULT_S
    assert capped[-1]["t_s"] > noise_ends
    assert Path(capped[0]["recording"]).is_file()
    told = [
        (alert["status"], alert["labels"]["severity"])
        for group in Handler.heard
        for alert in group["alerts"]
        if alert["labels"]["alertname"] == "admission-capped"
    ]
    assert told == [("firing", "page"), ("resolved", "page")]
