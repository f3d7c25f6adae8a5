"""A flight recorder becomes samples, whether its engine lives or not."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from kvscope.errors import SourceError
from kvscope.sources.ring import LAYER_GAP_S, PAST_LAYER_GAP_S, PAST_STEP_GAP_S, SLICE_ROWS, STEP_GAP_S, RingSource
from probes.ring import RingWriter

COLUMNS = ["t", "tokens.generated", "sched.running", "kv.bytes_per_layer[0]", "kv.bytes_per_layer[1]"]
REQUESTS = ["t", "latency.ttft", "latency.tpot"]
HEADER = {"engine": "kvscope", "version": "1", "model": "recall", "device": "cpu", "tags": {"cap": "16"}}


def writer_in(directory: Path) -> RingWriter:
    return RingWriter(HEADER, COLUMNS, REQUESTS, directory=directory)


def test_rows_become_samples_at_their_own_time(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.write_step([100.0, 5.0, 2.0, 10.0, 20.0])
    writer.write_request([100.5, 0.25, math.nan])
    source = RingSource(writer.path)
    found = {(s.metric, s.labels): s for s in source.poll().samples}
    assert found["tokens.generated", ()].value == 5
    assert found["kv.bytes_per_layer", (("layer", "1"),)].value == 20
    assert found["latency.ttft", ()].t - found["tokens.generated", ()].t == pytest.approx(0.5)
    assert ("latency.tpot", ()) not in found, "a request with one token has no TPOT"
    writer.write_step([101.0, 6.0, 2.0, 10.0, 20.0])
    assert [s.value for s in source.poll().samples if s.metric == "tokens.generated"] == [6]
    assert source.poll().samples == []
    source.close()


def test_fast_steps_are_thinned_out_but_the_newest_is_always_there(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    for step in range(1000):
        writer.write_step([100 + step * 0.005, float(step), 2.0, 10.0, 20.0])
    source = RingSource(writer.path)
    samples = source.poll().samples
    source.close()
    tokens = [s for s in samples if s.metric == "tokens.generated"]
    layers = [s for s in samples if s.metric == "kv.bytes_per_layer"]
    assert tokens[-1].value == 999
    assert len(tokens) == pytest.approx(5.0 / STEP_GAP_S, rel=0.1)
    assert len(layers) == pytest.approx(2 * 5.0 / LAYER_GAP_S, rel=0.2)
    assert [s.t for s in samples] == sorted(s.t for s in samples)


def test_an_event_cuts_a_segment_with_the_counters_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("probes.ring.time.monotonic", lambda: now[0])
    writer = writer_in(tmp_path)
    for step in range(20):
        now[0] = 100 + step * 0.01
        writer.write_step([now[0], float(step), 2.0, 10.0, 20.0])
        if step == 9:
            now[0] += 0.001
            writer.write_event(
                {"kind": "knobs", "mark": "after", "set": {"kernels": "block"}, "tags": {"kernels": "block"}}
            )
        if step == 14:
            writer.write_event({"kind": "knobs", "mark": "", "epoch": 4, "set": {"max_running": "8"}})
            writer.write_event({"kind": "note", "text": "no cut"})
    source = RingSource(writer.path)
    poll = source.poll()
    source.close()
    assert [mark.name for mark in poll.marks] == ["after", "epoch-4"]
    assert poll.marks[0].tags == {
        "engine": "kvscope",
        "version": "1",
        "model": "recall",
        "device": "cpu",
        "cap": "16",
        "kernels": "block",
    }
    assert poll.marks[1].tags["max_running"] == "8"
    tokens = [sample for sample in poll.samples if sample.metric == "tokens.generated"]
    assert {9.0, 10.0} <= {sample.value for sample in tokens}
    assert [s.value for s in tokens if s.t < poll.marks[0].t][-1] == 9


def test_a_long_past_comes_in_slices_that_say_what_it_says_at_once(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    rows = 2 * SLICE_ROWS + 50
    for step in range(rows):
        writer.write_step([100 + step * 0.25, float(step), 2.0, step * 10.0, 20.0])
        if step == SLICE_ROWS // 2:
            writer.write_event({"kind": "knobs", "mark": "after", "t": 100 + (step + 0.5) * 0.25})
    writer.write_request([101.0, 0.25, 0.02])
    whole, sliced = RingSource(writer.path), RingSource(writer.path, sliced=True)
    at_once = whole.poll()
    slices = [sliced.poll()]
    while slices[-1].more:
        slices.append(sliced.poll())
    whole.close()
    sliced.close()
    tokens = [s for s in at_once.samples if s.metric == "tokens.generated"]
    assert [s for one in slices for s in one.samples if s.metric == "tokens.generated"] == tokens
    assert [len(one.marks) for one in slices] == [1, 0, 0]
    layers = [s for one in slices for s in one.samples if s.labels == (("layer", "0"),)]
    steps = [round(s.value / 10) for s in layers]
    assert {SLICE_ROWS // 2, SLICE_ROWS // 2 + 1} <= set(steps), "both sides of a cut"
    assert (steps[0], steps[-1]) == (0, rows - 1)
    assert max(after - before for before, after in pairwise(steps)) <= PAST_LAYER_GAP_S / 0.25 + 1
    assert max(len(one.samples) for one in slices) < len(at_once.samples) / 2
    assert any(s.metric == "latency.ttft" for s in slices[-1].samples)


def test_fast_steps_of_a_long_past_are_thinned_out_more(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    for step in range(SLICE_ROWS + 10):
        writer.write_step([100 + step * 0.06, float(step), 2.0, 10.0, 20.0])
    source = RingSource(writer.path, sliced=True)
    past, now = source.poll(), source.poll()
    source.close()
    counts = [sum(s.metric == "tokens.generated" for s in poll.samples) for poll in (past, now)]
    assert counts[0] == pytest.approx(SLICE_ROWS * 0.06 / PAST_STEP_GAP_S, rel=0.3)
    assert counts[1] == pytest.approx(10, abs=1)
    assert now.samples[-1].t == pytest.approx(past.samples[0].t + (SLICE_ROWS + 9) * 0.06)


def test_a_living_engine_is_described_and_goes_on(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    source = RingSource(writer.path)
    description = source.describe()
    assert (description.kind, description.engine, description.alive) == ("ring", "kvscope", True)
    assert description.tags["cap"] == "16"
    assert not source.poll().ended
    writer.close()
    poll = source.poll()
    assert poll.ended
    assert "ended, last heard of" in poll.notices[0]
    source.close()


def test_a_killed_engine_is_read_to_its_last_row(tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from probes.ring import RingWriter
writer = RingWriter({HEADER!r}, {COLUMNS!r}, {REQUESTS!r}, directory=Path({str(tmp_path)!r}))
for step in range(10):
    writer.write_step([100.0 + step, float(step), 2.0, 10.0, 20.0])
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = str(Path(__file__).parents[3])
    ended = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": root}, check=False)
    assert ended.returncode == -signal.SIGKILL
    source = RingSource(next(tmp_path.glob("*.ring")))
    poll = source.poll()
    assert [s.value for s in poll.samples if s.metric == "tokens.generated"] == list(range(10))
    assert not source.describe().alive
    assert poll.ended
    assert "died, last heard of" in poll.notices[0]
    assert source.poll().notices == (), "death is told once"
    source.close()


def test_a_file_that_is_no_recorder_is_a_source_error(tmp_path: Path) -> None:
    path = tmp_path / "x.ring"
    path.write_bytes(b"KVSCOPE\x01" + b"\x00" * 8)
    with pytest.raises(SourceError, match=r"x\.ring"):
        RingSource(path)
