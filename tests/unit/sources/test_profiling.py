"""A live engine's profiler turned on for a few steps, and exports of Nsight Systems, which hold the same kernels."""

from __future__ import annotations

import gzip
import http.server
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvscope.errors import NotEnoughData, SourceError, UsageError
from kvscope.sources import open_target
from kvscope.sources.find import kind_of_file
from kvscope.sources.profiling import Pace, Profiler, enough
from kvscope.sources.trace import TraceSource

SAMPLES = Path(__file__).parents[3] / "samples"
TRACE = SAMPLES / "traces" / "llama-sdpa-h200.json.gz"


def export(events: list[dict[str, Any]], path: Path, *, graphs: bool = False) -> Path:
    """Write the kernels, copies, calls and annotations of a torch trace as nsys would."""
    base = 7 << 24
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
            "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);"
            "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME"
            " (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
            " correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
            " correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);"
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);"
        )
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200')")
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1790000000000000000, '')")
        names: dict[str, int] = {}
        zero = min(event["ts"] for event in events if event.get("ph") == "X")
        for event in events:
            if event.get("ph") != "X":
                continue
            start, end = round((event["ts"] - zero) * 1e3), round((event["ts"] - zero + event["dur"]) * 1e3)
            name, args = names.setdefault(event["name"], len(names) + 1), event.get("args", {})
            link, stream = args.get("correlation", 0), args.get("stream", 7)
            if event["cat"] in ("cuda_runtime", "cuda_driver"):
                database.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", (start, end, base + 1, link, name)
                )
            elif event["cat"] == "kernel":
                row = (start, end, 0, stream, link, base, name)
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?)", row)
            elif event["cat"] == "gpu_memcpy":
                kind = next(n for n, word in ((1, "HtoD"), (2, "DtoH"), (8, "DtoD")) if word in event["name"])
                row = (start, end, 0, stream, link, base, args.get("bytes", 0), kind)
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?)", row)
            elif event["cat"] == "user_annotation":
                database.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,59,?,?)", (start, end, event["name"], base + 1))
        database.executemany("INSERT INTO StringIds VALUES (?,?)", [(number, name) for name, number in names.items()])
        database.commit()
    return path


def shares(path: Path) -> dict[str, float]:
    """Device time by kind of work over all steps."""
    found: dict[str, float] = {}
    for piece in TraceSource(path)._account.pieces:
        for work, us in piece.work.items():
            found[work] = found.get(work, 0.0) + us
    return {work: us / sum(found.values()) for work, us in found.items()}


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"]
    return found


def test_an_nsys_export_tells_what_the_torch_trace_of_the_same_kernels_tells(events, tmp_path):
    path = export(events, tmp_path / "report.sqlite")
    assert kind_of_file(path) == "trace"
    torch, nsys = shares(TRACE), shares(path)
    assert nsys["attend"] == pytest.approx(torch["attend"], abs=0.01)
    assert nsys["gemm"] == pytest.approx(torch["gemm"], abs=0.02)
    with closing(open_target(str(path))) as source:
        assert source.describe().tags["device"] == "NVIDIA H200"
        poll = source.poll()
    assert all(1_790_000_000 <= one.t < 1_790_001_000 for one in poll.samples)


def test_kernels_belong_to_calls_of_their_own_process(events, tmp_path):
    path = export(events, tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as database:
        # Another process's calls have the same numbers, and come first.
        rows = database.execute(
            "SELECT start, end, globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        ).fetchall()
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        other = [(0, 1, (9 << 24) + 1, link, name) for _, _, _, link, name in rows]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", other + rows)
        database.commit()
    assert shares(path) == shares(export(events, tmp_path / "alone.sqlite"))


def test_gaps_of_the_device_are_lines_of_their_own_and_no_share_of_its_work():
    with closing(open_target(str(TRACE))) as source:
        notices = source.poll().notices
    work = next(line for line in notices if "attend" in line and "gemm" in line)
    assert "host" not in work
    assert any(line.startswith("host: the device stood ") for line in notices)


@pytest.mark.parametrize("damage", ["text", "cut"])
def test_a_damaged_export_is_one_clear_line(events, tmp_path, damage):
    path = export(events, tmp_path / "report.sqlite")
    if damage == "text":
        with closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon', end = NULL")
            database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME")
            database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY")
            database.execute("DELETE FROM NVTX_EVENTS")
            database.commit()
    else:
        path.write_bytes(path.read_bytes()[:30_000])
    with pytest.raises(SourceError):
        open_target(str(path))


class Engine(http.server.BaseHTTPRequestHandler):
    """A vLLM whose profiler writes a trace when it is stopped."""

    folder: Path
    asked: list[str]
    steps = 0
    refuse = False

    def do_GET(self) -> None:
        type(self).steps += 10
        page = (
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n"
            "# TYPE vllm:iteration_tokens_total histogram\n"
            f'vllm:iteration_tokens_total_bucket{{le="+Inf"}} {self.steps}\n'
            f"vllm:iteration_tokens_total_count {self.steps}\nvllm:iteration_tokens_total_sum {self.steps}\n"
        )
        self.answer(200 if self.path == "/metrics" else 404, page.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.asked.append(f"{self.path} {body.decode()}")
        if self.path == "/stop_profile" and not self.refuse:
            (self.folder / "rank1.1.pt.trace.json.gz").write_bytes(TRACE.read_bytes())
            (self.folder / "rank0.1.pt.trace.json.gz").write_bytes(TRACE.read_bytes())
            (self.folder / "vm.async_llm.1.pt.trace.json.gz").write_bytes(b"no step in it")
        self.answer(404 if self.refuse else 200, b"")

    def answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    Engine.folder, Engine.asked, Engine.steps, Engine.refuse = tmp_path, [], 0, False
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def profiler(address: str, folder: Path) -> Profiler:
    return Profiler(address, str(folder), pause=lambda _: None)


def test_a_profile_starts_and_stops_the_engine_s_profiler_and_finds_its_trace(engine, tmp_path):
    with closing(profiler(engine, tmp_path)) as one:
        found = one.run(20, Pace(100.0, 1.0, 3.0))
    assert Engine.asked == ['/start_profile {"max_iterations": 20}', "/stop_profile "]
    assert found.trace.name == "rank0.1.pt.trace.json.gz"
    assert [path.name for path in found.others] == ["rank1.1.pt.trace.json.gz"]
    assert found.pace.steps >= 20


def test_the_engine_is_told_to_stop_although_something_fails_meanwhile(engine, tmp_path):
    with closing(profiler(engine, tmp_path)) as one:
        one.watch = lambda *_: 1 / 0
        with pytest.raises(ZeroDivisionError):
            one.run(20, Pace(100.0, 1.0, 3.0))
    assert Engine.asked[-1] == "/stop_profile "


def test_an_engine_without_a_profiler_is_told_how_to_turn_it_on(engine, tmp_path):
    Engine.refuse = True
    with closing(profiler(engine, tmp_path)) as one, pytest.raises(SourceError, match="--profiler-config"):
        one.run(20, Pace(100.0, 1.0, 3.0))


def test_nothing_is_started_where_the_trace_could_not_be_found_or_nothing_runs(engine, tmp_path):
    with pytest.raises(UsageError, match="give --dir FOLDER"):
        Profiler(engine)
    with pytest.raises(NotEnoughData, match="nothing runs there"):
        enough(Pace(0.0, 3.0, 0.0), engine)
    assert Engine.asked == []
