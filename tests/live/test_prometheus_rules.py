"""A live Prometheus with the exported rules, scraping captures that are served again at the pace they were taken.

Opt-in, it takes as long as the longest capture: ``KVSCOPE_LIVE=1 KVSCOPE_CAPTURES=FOLDER python -m pytest
tests/live/test_prometheus_rules.py``. Needs a ``prometheus`` program (``apt-get install prometheus``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvscope.export import render
from kvscope.export._rules import alerts
from kvscope.playbook import load_all
from tests.contract.test_export import AFTER_THE_LOAD_S, FOLDERS, found_on, pages
from tests.live.test_prometheus_fleet import free_port, wait_ready

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("KVSCOPE_LIVE"), reason="live: set KVSCOPE_LIVE=1"),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus program"),
]
PLAYBOOKS = load_all()
SETTLES_S = 3.0
Capture = tuple[list[float], list[str]]


class Pages(ThreadingHTTPServer):
    """Serves every capture under its name, each page from the moment at which it was taken; then the last one."""

    def __init__(self, port: int) -> None:
        self.captures = {folder.name: capture_of(folder) for folder in FOLDERS}
        self.began_s = 0.0
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    """Answers ``/NAME/metrics``."""

    server: Pages

    def do_GET(self) -> None:
        times, texts = self.server.captures[self.path.split("/")[1]]
        at = bisect_right(times, time.time() - self.server.began_s) - 1
        body = texts[max(0, at)].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def capture_of(folder: Path) -> Capture:
    """Seconds since the capture began, and the page of each."""
    rows = list(pages(folder))
    return [t - rows[0][0] for t, _ in rows], [text for _, text in rows]


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Capture → playbooks whose alert fires shortly before the load of that capture ends."""
    where = tmp_path_factory.mktemp("prometheus")
    (where / "rules.yaml").write_text(render("prometheus", PLAYBOOKS, "vllm"), encoding="utf-8")
    port, own = free_port(), free_port()
    with ExitStack() as stack:
        server = Pages(own)
        stack.callback(server.server_close)
        jobs = [
            {
                "job_name": name,
                "metrics_path": f"/{name}/metrics",
                "static_configs": [{"targets": [f"127.0.0.1:{own}"], "labels": {"instance": name}}],
            }
            for name in server.captures
        ]
        intervals = {"scrape_interval": "1s", "evaluation_interval": "5s"}
        config = {"global": intervals, "rule_files": ["rules.yaml"], "scrape_configs": jobs}
        (where / "prometheus.yml").write_text(json.dumps(config))
        arguments = (f"--config.file={where / 'prometheus.yml'}", f"--storage.tsdb.path={where / 'data'}")
        prometheus = subprocess.Popen(
            ["prometheus", *arguments, f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(prometheus.wait)
        stack.callback(prometheus.terminate)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        server.began_s = time.time()
        wait_ready(port)
        lasts = {name: times[-1] for name, (times, _) in server.captures.items()}
        time.sleep(max(0.0, server.began_s + max(lasts.values()) + SETTLES_S - time.time()))
        yield {name: firing(port, name, server.began_s + last - AFTER_THE_LOAD_S) for name, last in lasts.items()}


def firing(port: int, name: str, t: float) -> set[str]:
    """The playbooks whose alert fired for a capture at a time."""
    query = urllib.parse.urlencode({"query": f'ALERTS{{alertstate="firing",instance="{name}"}}', "time": f"{t:.3f}"})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=5) as reply:
        return {row["metric"]["playbook"] for row in json.load(reply)["data"]["result"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_prometheus_fires_where_kvscope_finds(fired: dict[str, set[str]], folder: Path) -> None:
    exported = {one.rule.id for one in alerts(PLAYBOOKS, "vllm")[0]}
    assert fired[folder.name] == found_on(folder) & exported
