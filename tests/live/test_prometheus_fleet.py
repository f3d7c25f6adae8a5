"""A live Prometheus that scrapes three of our own engines, one of them misconfigured: the bad one is named.

Opt-in, it takes a minute: ``KVSCOPE_LIVE=1 python -m pytest tests/live/test_prometheus_fleet.py``. Needs a
``prometheus`` program (``apt-get install prometheus``) and the engine extra.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from kvscope.cli import run
from kvscope.signals import replicas
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine
from kvscope.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("KVSCOPE_LIVE"), reason="live: set KVSCOPE_LIVE=1"),
    pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus program"),
]
LOAD = {"load.documents": "4", "load.document_tokens": "512", "load.new_tokens": "16"}
HEALTHY = {**LOAD, "load.clients": "1"}
CROWDED = {**LOAD, "load.clients": "8", "max_running": "1"}
WATCH_S = 30.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a Prometheus that scraped for a while, and the instance of the bad engine."""
    where = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as stack:
        engines = []
        for knobs in (HEALTHY, HEALTHY, CROWDED):
            engine = BuiltinEngine.start(knobs, ("--pool-mib", "64", "--threads", "1"))
            stack.callback(engine.stop, keep_recorder=False)
            engines.append(engine)
        targets = [f"127.0.0.1:{engine.port}" for engine in engines]
        config = where / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s"},
                    "scrape_configs": [
                        {"job_name": "engines", "static_configs": [{"targets": targets, "labels": {"pool": "chat"}}]}
                    ],
                }
            )
        )
        port = free_port()
        prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={where / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(prometheus.wait)
        stack.callback(prometheus.terminate)
        wait_ready(port)
        time.sleep(WATCH_S)
        yield f"prom+http://127.0.0.1:{port}?match=pool%3D%22chat%22&last=60s", targets[-1]


def wait_ready(port: int) -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("prometheus did not come up")


def test_the_bad_replica_is_named(fleet: tuple[str, str]) -> None:
    address, bad = fleet
    store = Store()
    with closing(open_target(address)) as source:
        poll = source.poll()
        description = source.describe()
    store.add(poll.samples)
    assert description.tags["replicas"] == "3"
    segment = store.segments[-1]
    lines = replicas.outliers(store, segment)
    assert lines
    assert all(bad in line for line in lines)
    assert "requests waiting" in lines[0]


def test_the_report_names_it(fleet: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    address, bad = fleet
    run(["diagnose", address, "--duration", "3"])
    shown = capsys.readouterr()
    assert f"replica {bad} stands out" in shown.out + shown.err
    assert "3 replicas" in shown.out + shown.err


def test_the_same_engines_by_their_addresses_name_it_too(
    fleet: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    address, bad = fleet
    with closing(open_target(address)) as source:
        source.poll()
        targets = sorted(source._replicas)  # type: ignore[attr-defined]
    run(["diagnose", ",".join(targets), "--duration", "12"])
    shown = capsys.readouterr()
    assert f"replica {bad} stands out" in shown.out + shown.err
