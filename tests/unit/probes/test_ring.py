"""The flight recorder keeps what was written, survives its writer, and never shows a half-written row."""

from __future__ import annotations

import json
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

from probes.layout import HEADS_OFFSET, HEARTBEAT, HEARTBEAT_OFFSET
from probes.ring import RingWriter
from probes.ring_reader import RingError, RingReader, find_rings, remove_stale
from probes.runtime import RuntimeDirError, is_stopped, process_start_ticks, runtime_dir

COLUMNS = ["t", "time.step", "kv.bytes_per_layer[0]", "kv.bytes_per_layer[1]"]
REQUESTS = ["t", "latency.ttft"]


def writer_in(directory: Path, **options: int) -> RingWriter:
    return RingWriter({"engine": "test"}, COLUMNS, REQUESTS, directory=directory, **options)


def test_rows_come_back_in_order_and_once(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    for step in range(5):
        writer.write_step([float(step), 0.1 * step, 10.0, 20.0])
    writer.write_request([9.0, 0.25])
    writer.write_event({"kind": "knobs", "set": {"kernels": "block"}})

    reader = RingReader(writer.path)

    assert [values[0] for _, values in reader.steps()] == [0, 1, 2, 3, 4]
    assert [seq for seq, _ in reader.steps(since=3)] == [4, 5]
    assert reader.requests()[0][1] == (9.0, 0.25)
    assert reader.events()[0][1]["set"] == {"kernels": "block"}
    assert reader.header["engine"] == "test"
    assert reader.is_alive()


def test_the_file_is_private(tmp_path: Path) -> None:
    assert stat.S_IMODE(writer_in(tmp_path).path.stat().st_mode) == 0o600


def test_a_full_ring_keeps_the_newest_rows(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, step_bytes=1)
    for step in range(1500):
        writer.write_step([float(step), 0.0, 0.0, 0.0])
    rows = RingReader(writer.path).steps()
    assert len(rows) == 1024
    assert rows[-1][1][0] == 1499.0


def test_an_array_is_written_as_a_list_is_and_only_with_a_value_a_column(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    values = [1.0, 0.1, float("nan"), -2.5e300]
    writer.write_step(values)
    writer.write_step(array("d", values))
    one, other = (struct.pack("4d", *row) for _, row in RingReader(writer.path).steps())
    assert one == other
    for wrong in ([1.0], array("d", [1.0] * 5)):
        with pytest.raises((AssertionError, struct.error)):
            writer.write_step(wrong)
    assert len(RingReader(writer.path).steps()) == 2


@pytest.mark.parametrize("advice", [23, 0x7FFF], ids=["pages reached ahead", "a kernel without that advice"])
def test_rows_over_many_pages_and_a_second_lap_are_all_there(
    advice: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.ring._POPULATE_WRITE", advice)
    writer = writer_in(tmp_path, step_bytes=48 * 20_000)
    for step in range(25_000):
        writer.write_step(array("d", [float(step), 0.0, 0.0, 0.0]))
    rows = [values[0] for _, values in RingReader(writer.path).steps()]
    assert rows == [float(step) for step in range(5_000, 25_000)]


def test_a_torn_row_is_skipped_and_counted(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    for step in range(3):
        writer.write_step([float(step), 0.0, 0.0, 0.0])
    reader = RingReader(writer.path)
    at = reader._shapes[0].row_offset(2) + 20
    with writer.path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff")
    assert [seq for seq, _ in reader.steps()] == [1, 3]
    assert reader.torn == 1


def test_a_head_that_ran_ahead_of_its_row_shows_no_row(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.write_step([1.0, 0.0, 0.0, 0.0])
    with writer.path.open("r+b") as file:
        file.seek(HEADS_OFFSET)
        file.write((2).to_bytes(8, "little"))
    assert len(RingReader(writer.path).steps()) == 1


KILLED = """
import sys, time
from pathlib import Path
from probes.ring import RingWriter
writer = RingWriter({}, ["t", "time.step"], ["t"], directory=Path(sys.argv[1]))
for step in range(100):
    writer.write_step([float(step), 0.5])
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_process_leaves_its_last_rows_and_is_known_to_be_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (path,) = find_rings(tmp_path)
        assert RingReader(path).is_alive()
        process.send_signal(signal.SIGKILL)
        process.wait()
    reader = RingReader(path)
    assert not reader.is_alive()
    assert len(reader.steps()) == 100
    assert remove_stale(tmp_path) == [path]
    assert find_rings(tmp_path) == []


def test_a_reused_pid_is_told_by_its_start_time(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    reader = RingReader(writer.path)
    reader.start_ticks -= 1
    assert not reader.is_alive()


def test_a_ring_closed_in_order_is_not_alive(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.close()
    assert not RingReader(writer.path).is_alive()


@pytest.mark.parametrize("content", [b"", b"KVSCOPE\x01", b"KVSCOPE\x01" + b"\x00" * 80, b"not a ring at all" * 20])
def test_something_else_is_refused_with_a_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "engine-1-1.ring"
    path.write_bytes(content)
    with pytest.raises(RingError, match=r"engine-1-1\.ring"):
        RingReader(path)


def test_a_truncated_ring_is_refused_with_its_size(tmp_path: Path) -> None:
    path = writer_in(tmp_path).path
    os.truncate(path, 5000)
    with pytest.raises(RingError, match="truncated: 5000 bytes"):
        RingReader(path)


def test_no_process_has_no_start_time() -> None:
    assert process_start_ticks(2**22 + 1) is None
    assert process_start_ticks(os.getpid()) is not None


def test_an_unusable_runtime_directory_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(blocker / "sub"))
    with pytest.raises(RuntimeDirError, match="KVSCOPE_RUNTIME_DIR"):
        runtime_dir(create=True)


def test_a_writer_that_shows_life_and_stops_doing_so_is_silent_and_one_that_never_did_is_not(tmp_path: Path) -> None:
    for header, silent in (({"beats_s": 0.05}, True), ({}, False), ({"beats_s": "often"}, False)):
        writer = RingWriter(header, ["t"], ["t"], directory=tmp_path)
        reader = RingReader(writer.path)
        writer.beat()
        assert reader.halted() == ""
        HEARTBEAT.pack_into(writer._map, HEARTBEAT_OFFSET, time.monotonic() - 60.0)
        assert ("no sign of life for 60 s" in reader.halted()) is silent
        writer.close()


def test_a_halted_process_is_told_from_one_that_runs() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not is_stopped(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert is_stopped(process.pid)
    finally:
        process.kill()
        process.wait()


def test_an_event_longer_than_a_row_is_cut_and_written_all_the_same(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.write_event({"kind": "knobs", "mark": "\U0001f600" * 64, "set": {"curve": "0:0.1," * 500}, "epoch": 3})
    writer.write_event({"kind": "mark", "mark": "\x1b[31m" * 500, "tags": {f"t{n}": "x" * 90 for n in range(90)}})
    events = [event for _, event in RingReader(writer.path).events()]
    assert [event["kind"] for event in events] == ["knobs", "mark"]
    assert events[0]["mark"].startswith("\U0001f600" * 15)
    assert "\x1b" not in json.dumps(events, ensure_ascii=False)


def test_a_file_that_becomes_shorter_while_it_is_read_gives_torn_rows_and_no_end_of_the_process(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    for n in range(10):
        writer.write_step([float(n)] * len(RingReader(writer.path).columns))
    reader = RingReader(writer.path)
    os.truncate(writer.path, 4096)
    assert reader.steps() == []
    assert reader.events() == []
