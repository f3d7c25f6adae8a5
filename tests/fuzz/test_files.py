"""Whatever is in a file: its samples, or one clear error; damage is said, memory stays bounded."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.errors import KvscopeError
from kvscope.recording import Recorder
from kvscope.sources import open_target
from kvscope.sources.source import Poll
from probes.sample import Sample

ROOT = Path(__file__).parents[2]
FIXTURE = (ROOT / "samples/recordings/admission-capped.silent.jsonl").read_bytes()[:12_000]
SERIES = "\n".join(
    json.dumps({"t": float(t), "text": f"vllm:num_requests_running 1\nvllm:generation_tokens_total {t}\n"})
    for t in range(6)
).encode()
PAGE = (ROOT / "samples/scrapes/vllm-0.32.0.prom").read_bytes()[:6_000]


def read(path: Path) -> None:
    with suppress(KvscopeError), closing(open_target(str(path))) as source:
        source.describe()
        for _ in range(3):
            if source.poll().ended:
                break


edits = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 40)), max_size=6)


def damaged(data: bytes, changes: list[tuple[float, bytes, int]], cut: float) -> bytes:
    for where, new, dropped in changes:
        at = int(where * len(data))
        data = data[:at] + new + data[at + dropped :]
    return data[: int(cut * len(data))]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of small files are written there."""
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def recorded(place: Path) -> Path:
    """A whole recording, in a file that stays as it is."""
    path = place / "whole.db"
    with closing(Recorder(path)) as recorder:
        for t in range(40):
            found = [Sample("tokens.generated", float(t), 1000.0 + t), Sample("sched.running", 2.0, 1000.0 + t)]
            recorder.write(Poll(found))
    return path


@given(
    which=st.integers(0, 2),
    changes=edits,
    cut=st.floats(0, 1) | st.just(1.0),
    zipped=st.booleans(),
)
def test_a_damaged_text_file(
    place: Path, which: int, changes: list[tuple[float, bytes, int]], cut: float, zipped: bool
) -> None:
    path = place / "text"
    whole = damaged((FIXTURE, SERIES, PAGE)[which], changes, cut)
    path.write_bytes(damaged(gzip.compress(whole), changes[:1], 1.0) if zipped else whole)
    read(path)


@given(changes=edits, cut=st.floats(0, 1) | st.just(1.0))
def test_a_damaged_recording(place: Path, recorded: Path, changes: list[tuple[float, bytes, int]], cut: float) -> None:
    path = place / "recording"
    path.write_bytes(damaged(recorded.read_bytes(), changes, cut))
    read(path)


@given(data=st.binary(max_size=300))
def test_any_bytes(place: Path, data: bytes) -> None:
    path = place / "bytes"
    path.write_bytes(data)
    read(path)


def test_a_recording_whose_damage_is_quoted_in_bytes_that_are_no_text(place: Path, recorded: Path) -> None:
    for cut in (0.5, 1.0):
        path = place / "quoted"
        path.write_bytes(damaged(recorded.read_bytes(), [(0.08996212114847514, b"\x00\x00\x00\x80", 0)], cut))
        read(path)


ENDLESS = "WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c)"


def test_a_view_that_computes_rows_without_end_is_not_read(place: Path, recorded: Path) -> None:
    export = place / "export.sqlite"
    export.unlink(missing_ok=True)
    with closing(sqlite3.connect(export)) as database, database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, demangledName)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 1, 1)")
        database.execute(f"CREATE VIEW StringIds AS {ENDLESS} SELECT id, 'x' AS value FROM c")
    read(export)
    copy = place / "views.db"
    copy.write_bytes(recorded.read_bytes())
    with closing(sqlite3.connect(copy)) as database, database:
        database.execute("DROP TABLE marks")
        database.execute(f"CREATE VIEW marks AS {ENDLESS} SELECT id AS t, 'm' AS name, '' AS tags FROM c")
    with pytest.raises(KvscopeError, match="marks is no table of its own"):
        open_target(str(copy))
