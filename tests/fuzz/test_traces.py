"""Whatever is in a profiler trace or a flight recorder: what can be read of it, or one clear error."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.errors import KvscopeError
from kvscope.sources import open_target
from probes.ring import RingWriter

NAMES = [
    "ProfilerStep#1",
    "aten::mm",
    "flash_fwd_kernel",
    "Memcpy HtoD",
    "index_select",
    "cudaLaunchKernel",
    "",
    "ß\u0000",
]
CATEGORIES = ["kernel", "cpu_op", "gpu_memcpy", "user_annotation", "cuda_runtime", "python_function", "x"]
numbers = st.one_of(st.integers(-(10**20), 10**20), st.integers(0, 3000), st.floats(), st.none(), st.text(max_size=3))
events = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "B", "E", "i", "M", "f", ""]), "name": st.sampled_from(NAMES) | st.none()},
    optional={
        "cat": st.sampled_from(CATEGORIES) | st.none(),
        "ts": numbers,
        "dur": numbers,
        "pid": st.integers(0, 2) | st.text(max_size=2),
        "tid": st.integers(0, 3) | st.text(max_size=2),
        "args": st.dictionaries(
            st.sampled_from(["correlation", "External id", "bytes", "stream"]), numbers, max_size=3
        ),
    },
)
documents = st.builds(
    lambda found, rest: json.dumps({**rest, "traceEvents": found}),
    st.lists(events | numbers, max_size=12),
    st.dictionaries(st.sampled_from(["schemaVersion", "deviceProperties", "displayTimeUnit"]), numbers, max_size=2),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def ring(place: Path) -> Path:
    """A flight recorder with a few rows, in a file that stays as it is."""
    place.chmod(0o700)
    writer = RingWriter(
        {"engine": "e"}, ["t", "sched.running"], ["t", "latency.ttft"], directory=place, step_bytes=4096
    )
    for t in range(20):
        writer.write_step([float(t), 2.0])
        writer.write_request([float(t), 0.1])
    writer.close()
    return writer.path


def read(path: Path) -> None:
    with suppress(KvscopeError), closing(open_target(str(path))) as source:
        source.describe()
        for _ in range(3):
            if source.poll().ended:
                break


def damaged(data: bytes, changes: list[tuple[float, bytes, int]], cut: float) -> bytes:
    for where, new, dropped in changes:
        at = int(where * len(data))
        data = data[:at] + new + data[at + dropped :]
    return data[: int(cut * len(data))]


edits = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 20)), max_size=4)


@given(text=documents, changes=edits, cut=st.floats(0, 1) | st.just(1.0))
def test_a_trace_of_any_shape(place: Path, text: str, changes: list[tuple[float, bytes, int]], cut: float) -> None:
    path = place / "trace.json"
    path.write_bytes(damaged(text.encode(), changes, cut))
    read(path)


@given(changes=edits, head=st.floats(0, 0.02), cut=st.floats(0, 1) | st.just(1.0))
def test_a_damaged_flight_recorder(
    place: Path, ring: Path, changes: list[tuple[float, bytes, int]], head: float, cut: float
) -> None:
    # Damage near the start, where the header is, and anywhere.
    near = [(head * where, new, len(new)) for where, new, _ in changes]
    path = place / "damaged.ring"
    path.write_bytes(damaged(ring.read_bytes(), near + changes[:1], cut))
    read(path)
