"""Recordings play back whole or paced; damage is said once, with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.errors import SourceError
from kvscope.recording import Recorder
from kvscope.sources import recording as module
from kvscope.sources.recording import RecordingSource
from kvscope.sources.source import Description, Mark, Poll
from probes.sample import Sample

HEADER = '{"kvscope_recording": 1, "source": {"engine": "e"}, "synthetic": true, "tags": {"model": "m"}}\n'


def recorded(path: Path, n: int = 10) -> Path:
    recorder = Recorder(path, Description("vllm", "host:1", "vllm", "0.32", {"model": "m"}))
    samples = [Sample("tokens.generated", float(k), 100.0 + k) for k in range(n)]
    recorder.write(Poll(samples, (Mark("after", 105.0, {"cap": "4"}),)))
    recorder.close()
    return path


def test_a_recording_plays_at_once_with_its_marks_and_its_origin(tmp_path: Path) -> None:
    source = RecordingSource(recorded(tmp_path / "r.db"))
    description = source.describe()
    assert (description.kind, description.engine, description.version) == ("recording", "vllm", "0.32")
    assert description.tags == {"model": "m"}
    poll = source.poll()
    assert [sample.value for sample in poll.samples] == list(range(10))
    assert poll.marks == (Mark("after", 105.0, {"cap": "4"}),)
    assert poll.ended
    source.close()


def test_a_speed_paces_it(tmp_path: Path) -> None:
    now = [0.0]
    source = RecordingSource(recorded(tmp_path / "r.db"), speed=1.0, clock=lambda: now[0])
    assert len(source.poll().samples) == 1
    now[0] = 5.5
    poll = source.poll()
    assert len(poll.samples) == 5
    assert poll.marks[0].name == "after"
    now[0] = 50.0
    assert source.poll().ended
    source.close()


def test_a_long_one_is_thinned_out_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(tmp_path / "r.db", n=250)
    monkeypatch.setattr(module, "_MOST_IN_FULL", 100)
    source = RecordingSource(path)
    poll = source.poll()
    assert len(poll.samples) < 110
    assert poll.samples[-1].value == 249
    assert "one in 3" in poll.notices[0]
    assert source.poll().samples == []
    source.close()
    monkeypatch.setattr(module, "_MOST_UNPACKED", 200)
    source = RecordingSource(path)
    poll = source.poll()
    source.close()
    assert [sample.value for sample in poll.samples] == [0, 4, 5, 249]
    assert "summaries" in poll.notices[0]


def fixture(path: Path, *lines: str) -> Path:
    path.write_text(HEADER + "".join(lines))
    return path


def test_a_fixture_plays(tmp_path: Path) -> None:
    path = fixture(
        tmp_path / "f.jsonl",
        '{"mark": "before", "t": 1, "tags": {"cap": 4}}\n',
        '{"t": 1, "s": {"sched.running": 2, "kv.bytes_per_layer{layer=0}": 7.5}}\n',
    )
    source = RecordingSource(path)
    poll = source.poll()
    assert poll.samples == [
        Sample("sched.running", 2.0, 1.0),
        Sample("kv.bytes_per_layer", 7.5, 1.0, (("layer", "0"),)),
    ]
    assert poll.marks == (Mark("before", 1.0, {"cap": "4"}),)
    assert source.describe().note == "recording (synthetic)"


def test_a_fixture_cut_in_its_last_line_gives_the_rest_and_one_notice(tmp_path: Path) -> None:
    path = fixture(tmp_path / "f.jsonl", '{"t": 1, "s": {"sched.running": 2}}\n', '{"t": 2, "s": {"sched.ru')
    poll = RecordingSource(path).poll()
    assert len(poll.samples) == 1
    assert poll.notices == (f"{path}, line 3: cut in the middle of the line; what is whole was read",)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"t": "now", "s": {}}\n', "line 2: time 't' is 'now'"),
        ('{"t": 1, "x": {}}\n', "line 2: expected {mark, t, tags} or {t, s}"),
        ('{"t": 1, "s": {"a": "b"}}\n', "line 2: a is 'b', expected a number"),
        ('{"t": 1, "s": {"a{": 1}}\n', "line 2: 'a{' is no series"),
        ("", "nothing in it"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        RecordingSource(fixture(tmp_path / "f.jsonl", lines)).poll()


def test_time_does_not_go_back(tmp_path: Path) -> None:
    path = fixture(tmp_path / "f.jsonl", '{"t": 9, "s": {"a": 1}}\n', '{"t": 8, "s": {"a": 1}}\n')
    with pytest.raises(SourceError, match="line 3: goes back in time"):
        RecordingSource(path).poll()


def test_another_version_of_the_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text('{"kvscope_recording": 2}\n')
    with pytest.raises(SourceError, match="line 1: version 2"):
        RecordingSource(path)
