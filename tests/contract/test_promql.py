"""Signals as PromQL, evaluated by a real Prometheus over captured pages, against what kvscope reads from the same.

Needs the programs ``prometheus`` and ``promtool`` (Debian package prometheus); skipped without them.
"""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kvscope import signals
from kvscope.export._rules import PageNames
from kvscope.signals.promql import promql
from kvscope.signals.reading import Reading
from kvscope.sources import open_target
from kvscope.store import Segment, Store
from tests.contract.test_export import FOLDERS, pages

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="no prometheus program"
)
CHOSEN = ("admission-limited", "two-api-servers", "07_kv_too_small_preempt", "17_restart_counter_reset", "gpu_healthy")
WITHIN = 0.02
ENDS = 3
"""Samples by which a stretch of moments is uncertain: half of one at each change, one at each end."""
READY_S = 20.0


def openmetrics(folder: Path, target: Path) -> tuple[float, float]:
    """Write a capture with its times and return the first and the last."""
    times = []
    with target.open("w", encoding="utf-8") as file:
        for t, text in pages(folder):
            times.append(t)
            for line in text.splitlines():
                if line and not line.startswith("#"):
                    series, _, value = line.rpartition(" ")
                    name, brace, labels = series.partition("{")
                    file.write(f'{name}{{instance="e"{"," + labels if brace else "}"} {value} {t:.3f}\n')
        file.write("# EOF\n")
    return times[0], times[-1]


@contextmanager
def prometheus(data: Path) -> Iterator[int]:
    """Serve what was imported, on a port of its own."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    (data / "prometheus.yml").write_text("{}")
    options = (
        "--storage.tsdb.retention.time=100y",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    running = subprocess.Popen(
        ["prometheus", f"--config.file={data / 'prometheus.yml'}", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + READY_S
        while not ready(port):
            assert time.monotonic() < until, "prometheus did not start"
        yield port
    finally:
        running.terminate()
        running.wait()


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as reply:
            return int(reply.status) == 200
    except OSError:
        return False


def asked(port: int, expr: str, t: float) -> float | None:
    """Evaluate an expression at a time; None where it has no value."""
    query = urllib.parse.urlencode({"query": expr, "time": f"{t:.3f}"})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as reply:
        found = json.load(reply)["data"]["result"]
    assert len(found) <= 1, expr
    value = float(found[0]["value"][1]) if found else math.nan
    return value if math.isfinite(value) else None


@pytest.mark.parametrize("folder", [one for one in FOLDERS if one.name in CHOSEN], ids=lambda folder: folder.name)
def test_prometheus_reads_what_kvscope_reads(tmp_path: Path, folder: Path) -> None:
    first, last = openmetrics(folder, tmp_path / "pages.om")
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", tmp_path / "pages.om", tmp_path / "data"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    store, names = Store(), PageNames("vllm")
    with closing(open_target(str(folder / "pages.jsonl.gz"))) as source:
        store.add(source.poll().samples)
    segment = Segment("whole", first, math.nextafter(last, math.inf))
    window = f"{round((last - first) * 1000)}ms"
    compared, apart = 0, {}
    with prometheus(tmp_path / "data") as port:
        for name in signals.names():
            expr, reading = promql(name, names, window), signals.compute(name, store, segment)
            if expr is None or not isinstance(reading, Reading):
                continue
            value = asked(port, expr, last)
            moments = ":1s]" in expr
            # What was imported tells no scrape that failed: through a gap Prometheus holds the last value for moments.
            if value is None or (moments and "a gap of" in reading.source):
                continue
            compared += 1
            # Whether a condition held between two samples nobody knows: Prometheus says as at the earlier one.
            unknown = ENDS / reading.samples if moments else 0.0
            if abs(value - reading.value) > (WITHIN + unknown) * max(abs(value), abs(reading.value)) + 1e-9:
                apart[name] = (reading.value, value)
    assert compared > 20
    assert not apart
