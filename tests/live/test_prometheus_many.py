"""Five hundred replicas behind a real Prometheus cost it as many queries a minute as five.

Opt-in, it takes ten minutes: ``KVSCOPE_LIVE=1 python -m pytest tests/live/test_prometheus_many.py``. Needs a
``prometheus`` program (``apt-get install prometheus``). The replicas are made up: one page, served 500 times.
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
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvscope.sources import open_target
from tests.at_bound import Server
from tests.live.test_prometheus_fleet import free_port, wait_ready

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("KVSCOPE_LIVE"), reason="live: set KVSCOPE_LIVE=1"),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus program"),
]
MANY, FEW, SCRAPE_S, WATCH_S = 500, 5, 30, 150.0
SERVER = Server(lambda _: 0.3)
BEGAN_S = time.time()
Pages = dict[int, bytes]
_pages: Pages = {}


class Replica(BaseHTTPRequestHandler):
    """Answers a scrape with the page of this second."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        second = int(time.time() - BEGAN_S)
        if second not in _pages:
            _pages.clear()
            _pages[second] = SERVER.page(float(second)).encode()
        body = _pages.get(second, b"")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Prometheus that scraped all of them twice at least."""
    where: Path = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Replica)
        server.daemon_threads = True
        stack.callback(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        address = f"127.0.0.1:{server.server_port}"
        groups = [
            {
                "targets": [address],
                "labels": {"instance": f"replica-{number}", "fleet": "few" if number < FEW else "rest"},
            }
            for number in range(MANY)
        ]
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s"},
            # Each replica has a path of its own: the same address with the same path is one target.
            "scrape_configs": [
                {
                    "job_name": "engines",
                    "static_configs": [
                        {**group, "labels": {**group["labels"], "__metrics_path__": f"/{number}/metrics"}}
                        for number, group in enumerate(groups)
                    ],
                }
            ],
        }
        (where / "prometheus.yml").write_text(json.dumps(config))
        port = free_port()
        started = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={where / 'prometheus.yml'}",
                f"--storage.tsdb.path={where / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(started.wait)
        stack.callback(started.terminate)
        wait_ready(port)
        time.sleep(3 * SCRAPE_S)
        yield port


def calls(port: int) -> float:
    """How often Prometheus's API was asked, by its own count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    counted = [line for line in lines if line.startswith("prometheus_http_requests_total") and "/api/v1/" in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in counted)


def watched(port: int, query: str) -> tuple[int, float, float]:
    """Replicas seen, queries a minute while they were watched for WATCH_S, and the longest poll in seconds."""
    longest = 0.0
    # Both run on this machine, which may be busy: a query that is given up is asked again, and counts.
    with closing(open_target(f"prom+http://127.0.0.1:{port}?{query}last=60s", timeout_s=60.0)) as source:
        # What is held already comes first, and how large a fleet it is.
        for _ in range(2):
            source.poll()
            time.sleep(SCRAPE_S)
        before, began = calls(port), time.monotonic()
        while time.monotonic() - began < WATCH_S:
            asked = time.monotonic()
            source.poll()
            longest = max(longest, time.monotonic() - asked)
            time.sleep(1.0)
        minutes = (time.monotonic() - began) / 60.0
        replicas = int(source.describe().tags["replicas"])
    return replicas, (calls(port) - before) / minutes, longest


def test_many_replicas_cost_as_many_queries_as_few(prometheus: int) -> None:
    few, few_queries, few_longest = watched(prometheus, "match=fleet%3D%22few%22&")
    many, many_queries, many_longest = watched(prometheus, "")
    told = "{} replicas: {:.1f} queries a minute, longest poll {:.2f} s\n"
    sys.stderr.write(told.format(few, few_queries, few_longest) + told.format(many, many_queries, many_longest))
    assert (few, many) == (FEW, MANY)
    # One poll more or less may fall into the minute.
    assert abs(many_queries - few_queries) <= 1.1
