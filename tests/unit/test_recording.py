"""A recording gives back what went in, survives its writer, and holds nothing that was not meant for it."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from kvscope.errors import SourceError, UsageError
from kvscope.recording import RecordedMark, Recorder, Recording, read, write_fixture
from kvscope.recording.fixture import parse_series, series_text
from kvscope.recording.schema import pack_times, pack_values, unpack_times, unpack_values
from kvscope.sources import open_target
from kvscope.sources.source import Description, Mark, Poll
from probes.sample import Sample, labels_of

START = 1_790_000_000.25


def ticks(n: int, first: int = 0) -> list[list[Sample]]:
    """n polls of three series, one second apart."""
    return [
        [
            Sample("tokens.generated", float(100 * k), START + k),
            Sample("kv.usage_ratio", 0.001 * (k % 100), START + k),
            Sample("kv.bytes_per_layer", math.sin(k) * 1e9, START + k, (("layer", "3"),)),
        ]
        for k in range(first, first + n)
    ]


def record(path: Path, polls: Iterable[list[Sample]]) -> None:
    recorder = Recorder(path)
    for samples in polls:
        recorder.add(samples)
    recorder.close()


def flat(polls: Iterable[list[Sample]]) -> list[Sample]:
    return [sample for samples in polls for sample in samples]


def test_what_goes_in_comes_out_in_time_order(tmp_path: Path) -> None:
    polls = ticks(1000)
    record(tmp_path / "r.db", polls)
    got = [item for item in read(tmp_path / "r.db") if isinstance(item, Sample)]
    assert [sample.t for sample in got] == sorted(sample.t for sample in got)
    assert sorted(got) == sorted(flat(polls))


@pytest.mark.parametrize(
    "values",
    [
        [0.0],
        [5.0, 5.0, 5.0],
        [float(2**52), 0.0, -3.0],
        [0.001, 0.002, 12.345],
        [0.1 + 0.2, 1e-300, 1e300, -0.5],
        [float(2**60), 1.0],
    ],
)
def test_values_are_packed_exactly(values: list[float]) -> None:
    assert unpack_values(pack_values(values)) == values


def test_times_are_packed_to_the_microsecond() -> None:
    times = [START, START + 0.000001, START + 300.5]
    assert unpack_times(pack_times(times)) == times


def test_one_series_is_read_without_the_others(tmp_path: Path) -> None:
    record(tmp_path / "r.db", ticks(700))
    recording = Recording(tmp_path / "r.db")
    points = list(recording.points("kv.bytes_per_layer", (("layer", "3"),)))
    assert points == [(START + k, math.sin(k) * 1e9) for k in range(700)]
    assert list(recording.points("no.such.metric")) == []
    recording.close()


def test_looking_for_a_recording_that_is_not_there_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="unable to open"):
        Recording(tmp_path / "gone.db")
    assert not list(tmp_path.iterdir())


def test_the_overview_keeps_a_counters_ends_and_a_gauges_mean(tmp_path: Path) -> None:
    record(tmp_path / "r.db", ticks(901))
    recording = Recording(tmp_path / "r.db")
    found = list(chain.from_iterable(recording.overview()))
    recording.close()
    counter = [sample.value for sample in found if sample.metric == "tokens.generated"]
    gauge = [sample.value for sample in found if sample.metric == "kv.usage_ratio"]
    assert (counter[0], counter[-1]) == (0.0, 90000.0)
    assert sum(gauge) / len(gauge) == pytest.approx(0.0495, rel=0.05)
    assert len(found) < 30


def test_every_nth_value_keeps_the_last_of_a_chunk_and_all_finished_requests(tmp_path: Path) -> None:
    polls = [[*samples, Sample("latency.ttft", 0.1, samples[0].t)] for samples in ticks(100)]
    record(tmp_path / "r.db", polls)
    recording = Recording(tmp_path / "r.db")
    found = list(recording.samples(every=10))
    recording.close()
    assert [s.value for s in found if s.metric == "tokens.generated"][-1] == 9900
    assert len([s for s in found if s.metric == "tokens.generated"]) == 11
    assert len([s for s in found if s.metric == "latency.ttft"]) == 100


def test_a_poll_is_written_with_its_marks_and_no_chunk_spans_two_segments(tmp_path: Path) -> None:
    samples = flat(ticks(10))
    recorder = Recorder(tmp_path / "r.db", Description("vllm", "host:1", "vllm", "0.32", {"model": "m"}))
    recorder.write(Poll(samples, (Mark("after", START + 5, {"kernels": "block"}),)))
    recorder.close()
    recording = Recording(tmp_path / "r.db")
    assert recording.marks == [RecordedMark("after", START + 5, {"kernels": "block"})]
    assert recording.header["source"]["engine"] == "vllm"
    assert recording.header["tags"] == {"model": "m"}
    spans = recording._db.execute("SELECT DISTINCT start_s, end_s FROM chunks ORDER BY start_s").fetchall()
    recording.close()
    assert spans == [(START, START + 4), (START + 5, START + 9)]
    items = list(read(tmp_path / "r.db"))
    at = next(index for index, item in enumerate(items) if isinstance(item, RecordedMark))
    assert items[at - 1].t < START + 5 == items[at + 1].t


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.db")
    for samples in ticks(320):
        recorder.add(samples)
    assert len(list(read(tmp_path / "r.db"))) == 960
    recorder.close()


def test_it_is_one_private_file_when_closed(tmp_path: Path) -> None:
    record(tmp_path / "r.db", ticks(3))
    assert [path.name for path in tmp_path.iterdir()] == ["r.db"]
    assert stat.S_IMODE((tmp_path / "r.db").stat().st_mode) == 0o600


def test_a_second_recorder_appends(tmp_path: Path) -> None:
    record(tmp_path / "r.db", ticks(5))
    record(tmp_path / "r.db", ticks(5, first=5))
    assert sorted(item for item in read(tmp_path / "r.db")) == sorted(flat(ticks(10)))


def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from kvscope.recording import Recorder
from probes.sample import Sample
recorder = Recorder(Path({str(tmp_path / "r.db")!r}))
for k in range(400):
    recorder.add([Sample("tokens.generated", float(k), 1000.0 + k)])
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = str(Path(__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env={**os.environ, "PYTHONPATH": root}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert [item.value for item in read(tmp_path / "r.db") if isinstance(item, Sample)] == list(range(400))
    record(tmp_path / "r.db", [[Sample("tokens.generated", 400.0, 1400.0)]])
    assert len(list(read(tmp_path / "r.db"))) == 401


def test_what_is_not_a_number_is_not_recorded(tmp_path: Path) -> None:
    record(tmp_path / "r.db", [[Sample("a", math.nan, 1.0), Sample("a", math.inf, 2.0), Sample("a", 3.0, 3.0)]])
    assert [item.value for item in read(tmp_path / "r.db") if isinstance(item, Sample)] == [3.0]


def test_a_long_tag_is_cut_for_it_cannot_be_a_setting(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.db")
    recorder.mark(Mark("m", 1.0, {"workload": "please summarise " * 1000}))
    recorder.close()
    recording = Recording(tmp_path / "r.db")
    assert len(recording.marks[0].tags["workload"]) == 256
    recording.close()


def test_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    record(tmp_path / "r.db", ticks(1))
    with closing(sqlite3.connect(tmp_path / "r.db")) as db, db:
        db.execute("PRAGMA user_version=7")
    db.close()
    with pytest.raises(SourceError, match="recording schema 7, this kvscope reads schema 1"):
        Recording(tmp_path / "r.db")
    with pytest.raises(UsageError, match="schema 7"):
        Recorder(tmp_path / "r.db")


def test_somebody_elses_database_is_neither_read_nor_written(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "x.db")
    db.execute("CREATE TABLE mine (a)")
    db.commit()
    db.close()
    with pytest.raises(SourceError, match="not a kvscope recording"):
        Recording(tmp_path / "x.db")
    with pytest.raises(UsageError, match="not a kvscope recording"):
        Recorder(tmp_path / "x.db")


def test_a_text_file_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine\n" * 100)
    with pytest.raises(UsageError, match="cannot be appended to"):
        Recorder(path)
    assert path.read_text().startswith("mine")


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no/such/r\.db"):
        Recorder(tmp_path / "no/such/r.db")


def test_of_a_truncated_file_what_is_whole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    record(path, [[Sample("a", math.sin(k) * k, float(k), (("n", str(n)),)) for n in range(20)] for k in range(1500)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    recording = Recording(path)
    found = list(recording.samples())
    recording.close()
    assert 0 < len(found) < 30000
    assert "what is whole was read" in recording.damage


def test_of_a_file_cut_in_its_first_page_nothing_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    record(path, ticks(5))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(SourceError, match="nothing of this recording can be read"):
        Recording(path)


def test_a_fixture_gives_back_what_went_in(tmp_path: Path) -> None:
    from kvscope.sources.recording import RecordingSource

    path = tmp_path / "r.jsonl"
    odd = Sample("engine.info", 1.0, START + 2, (("model", "org/a,b={c}%"),))
    mark = Mark("after", START + 2, {"cap": "4"})
    write_fixture(path, [*flat(ticks(2)), mark, odd], source={"engine": "e"}, tags={"model": "m"}, synthetic=True)
    source = RecordingSource(path)
    poll = source.poll()
    assert poll.samples == [*flat(ticks(2)), odd]
    assert poll.marks == (mark,)
    assert "synthetic" in source.describe().note
    assert source.describe().tags == {"model": "m"}


@pytest.mark.parametrize("text", ["a.b", "a.b{layer=3}", "a.bucket{le=0.5}", "a{x=1,y=2}"])
def test_a_series_is_written_as_it_is_read(text: str) -> None:
    assert series_text(*parse_series(text)) == text


@pytest.mark.parametrize("text", ["", "a b", "a{x}", "a{x=1", "{x=1}"])
def test_what_is_no_series_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a label has no value|is no series"):
        parse_series(text)


def test_a_copy_of_the_file_alone_holds_all_but_the_last_second(tmp_path: Path) -> None:
    path, copy = tmp_path / "run.db", tmp_path / "copy.db"
    recorder = Recorder(path)
    for t in range(5):
        recorder._settled_s = -math.inf  # As if a second had passed.
        recorder.add([Sample("sched.running", float(t), 1000.0 + t)])
    copy.write_bytes(path.read_bytes())
    found = [sample.value for sample in read(copy) if isinstance(sample, Sample)]
    assert found == [0.0, 1.0, 2.0, 3.0, 4.0]
    recorder.close()


def test_a_second_writer_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    first = Recorder(path)
    first.add([Sample("sched.running", 1.0, 1000.0)])
    with pytest.raises(UsageError, match="another recorder is writing it"):
        Recorder(path)
    first.add([Sample("sched.running", 2.0, 1001.0)])
    first.close()
    assert [sample.value for sample in read(path) if isinstance(sample, Sample)] == [1.0, 2.0]


def test_a_full_disk_ends_a_recording_in_one_line_and_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    recorder = Recorder(path)
    recorder.add([Sample("sched.running", 1.0, 1000.0)])
    pages = recorder._db.execute("PRAGMA page_count").fetchone()[0]
    recorder._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(SourceError, match=r"nothing more can be recorded .*full"):  # noqa: PT012 (which one meets it is chance)
        for t in range(100):
            many = [Sample("kv.bytes_per_layer", float(n), 1001.0 + t, labels_of(layer=str(n))) for n in range(500)]
            recorder.add(many)
    recorder.close()
    assert next(sample.value for sample in read(path) if isinstance(sample, Sample)) == 1.0


def test_a_series_that_was_silent_for_long_goes_on_under_its_own_number(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.db")
    for t in range(0, 4000, 20):
        born = [Sample("requests.finished", 1.0, float(t), labels_of(reason=str(t)))]
        back = [Sample("sched.waiting", float(t), float(t))] if t < 20 or t > 3900 else []
        recorder.add([Sample("sched.running", 2.0, float(t)), *born, *back])
    assert len(recorder._ids) < 50
    recorder.close()
    with closing(open_target(str(tmp_path / "r.db"))) as source:
        samples = source.poll().samples
    assert [one.t for one in samples if one.metric == "sched.waiting"] == [0.0, 3920.0, 3940.0, 3960.0, 3980.0]
    assert len({one.labels for one in samples if one.metric == "requests.finished"}) == 200
