"""A session: what a tick shows, what keys do, how an experiment is judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kvscope.errors import SourceError, UsageError
from kvscope.finding import Finding
from kvscope.order import Apply, MarkBaseline, NextBaseline, Pause, Record
from kvscope.playbook import load_all
from kvscope.session import Session
from kvscope.signals.reading import Missing, Reading
from kvscope.sources.source import Mark, Poll
from kvscope.view import Headline, View
from tests.unit.session_data import COMPRESSED, DENSE, START_S, TAGS, Clock, Engine, Lever, ListSource

FLAGSHIP = "memory-down-throughput-flat"


class Bench:
    """A session, its clock, and an engine made up by hand."""

    def __init__(self, lever: str = "marks") -> None:
        self.clock, self.engine, self.source = Clock(), Engine(), ListSource()
        self.lever = Lever(self.engine, self.source, self.clock, marks=lever == "marks", works=lever != "broken")
        playbooks = [book for book in load_all() if book.id == FLAGSHIP]
        self.session = Session(self.source, playbooks, clock=self.clock, controller=self.lever if lever else None)

    def run(self, seconds: int) -> View:
        """Let time pass, one sample a second."""
        for _ in range(seconds):
            self.clock.now_s += 1
            self.source.polls.append(Poll(self.engine.step(self.clock.now_s)))
            view = self.session.poll()
            while self.source.polls:
                view = self.session.poll()
        return view

    def segment(self, name: str) -> None:
        """The source reports a change of configuration."""
        self.source.polls.append(Poll([], (Mark(name, self.clock.now_s + 0.5, TAGS),)))

    def compressed(self) -> View:
        """Dense for a minute, then compressed for a minute."""
        self.segment("dense")
        self.run(60)
        self.engine.become(COMPRESSED, 400.0, 70e6, 0.25)
        self.segment("compressed")
        return self.run(60)


def headline(view: View, name: str) -> Headline:
    return next(one for one in view.headlines if one.name == name)


def finding(view: View) -> Finding:
    return next(one for one in view.findings if one.id == FLAGSHIP)


def span_names(view: View) -> tuple[str, str]:
    baseline = next((span.name for span in view.segments if span.is_baseline), "")
    return baseline, next(span.name for span in view.segments if span.is_current)


def test_before_the_first_sample_every_number_is_missing_and_the_status_says_why() -> None:
    view = Bench().session.poll()
    assert all(isinstance(one.now, Missing) for one in view.headlines)
    assert "Waiting" in view.status
    assert view.diagnosis is None


def test_now_is_the_end_of_the_current_segment_and_the_baseline_is_the_segment_before() -> None:
    view = Bench().compressed()
    memory = headline(view, "kv_resident_bytes")
    assert isinstance(memory.now, Reading)
    assert memory.now.value == pytest.approx(70e6, rel=0.02)
    assert isinstance(memory.baseline, Reading)
    assert memory.baseline.value == pytest.approx(200e6, rel=0.02)
    assert memory.change == pytest.approx(-0.65, abs=0.02)
    assert memory.sure
    assert memory.better == -1
    assert span_names(view) == ("dense", "compressed")


def test_a_change_within_the_noise_is_not_called_sure() -> None:
    view = Bench().compressed()
    assert not headline(view, "generation_tokens_per_s").sure
    assert headline(view, "right_token_share").in_points


def test_the_parts_of_a_token_s_time_sum_to_one_now_and_at_the_baseline() -> None:
    view = Bench().compressed()
    shares = {part.name: part.share for part in view.accounting}
    assert all(isinstance(share, float) for share in shares.values())
    assert sum(share for share in shares.values() if isinstance(share, float)) == pytest.approx(1.0, abs=1e-6)
    assert sum(part.baseline or 0.0 for part in view.accounting) == pytest.approx(1.0, abs=1e-6)
    assert shares["gather"] == pytest.approx(COMPRESSED["gather"], abs=0.01)
    assert next(part for part in view.accounting if part.name == "attend").baseline == pytest.approx(
        DENSE["attend"], abs=0.01
    )


def test_a_request_s_time_is_split_into_queue_prefill_and_decode() -> None:
    view = Bench().compressed()
    assert [part.name for part in view.request_path] == ["queue", "prefill", "decode"]
    assert sum(part.share for part in view.request_path if isinstance(part.share, float)) == pytest.approx(1.0)


def test_trends_and_layers_follow_the_samples_and_share_one_time_axis() -> None:
    view = Bench().compressed()
    memory = view.trends["kv_resident_bytes"].points
    assert not isinstance(memory, Missing)
    assert memory[5][1] == pytest.approx(200e6, rel=0.05)
    assert memory[-1][1] == pytest.approx(70e6, rel=0.05)
    rate = view.trends["generation_tokens_per_s"].points
    assert not isinstance(rate, Missing)
    assert rate[-3][1] == pytest.approx(400.0, rel=0.05)
    assert view.trends["sparse_hit_rate"].target == pytest.approx(0.25)
    assert view.layers is not None
    assert not isinstance(view.layers.rows, Missing)
    assert len(view.layers.rows) == 4
    assert view.window[0] <= memory[0][0] < memory[-1][0] <= view.window[1]


def test_a_counter_that_starts_again_from_zero_is_a_hole_and_not_a_negative_rate() -> None:
    bench = Bench()
    bench.run(20)
    bench.engine.totals.clear()
    points = bench.run(20).trends["generation_tokens_per_s"].points
    assert not isinstance(points, Missing)
    assert min(value for _, value in points) > 350


def test_the_flagship_is_found_when_memory_fell_and_throughput_did_not_move() -> None:
    assert finding(Bench().compressed()).verdict in ("likely", "possible")


def test_mark_makes_what_was_seen_the_baseline_and_starts_a_segment() -> None:
    bench = Bench()
    bench.run(20)
    assert "Baseline: all" in bench.session.do(MarkBaseline()) or "Baseline: start" in bench.session.do(MarkBaseline())
    view = bench.run(10)
    assert span_names(view)[1] == "after"
    assert isinstance(headline(view, "kv_resident_bytes").baseline, Reading)


def test_mark_right_after_a_change_takes_the_segment_before_and_cuts_nothing() -> None:
    bench = Bench()
    bench.segment("dense")
    bench.run(30)
    bench.segment("compressed")
    bench.run(3)
    assert bench.session.do(MarkBaseline()).startswith("Baseline: dense")
    assert [span.name for span in bench.run(1).segments] == ["dense", "compressed"]


def test_mark_with_too_little_data_says_so_and_changes_nothing() -> None:
    bench = Bench()
    bench.run(2)
    assert "needs" in bench.session.do(MarkBaseline())
    assert len(bench.run(1).segments) == 1


def test_segments_made_by_hand_never_share_a_name() -> None:
    bench = Bench()
    for _ in range(3):
        bench.run(10)
        bench.session.do(MarkBaseline())
    names = [span.name for span in bench.run(1).segments]
    assert len(set(names)) == len(names) == 4


def test_another_baseline_can_be_chosen_going_round() -> None:
    bench = Bench()
    bench.compressed()
    bench.session.do(MarkBaseline())
    bench.run(10)
    assert bench.session.do(NextBaseline()) == "Baseline: dense"
    assert bench.session.do(NextBaseline()) == "Baseline: compressed"


def test_a_paused_view_stands_still_while_data_are_collected() -> None:
    bench = Bench()
    before = bench.run(20)
    bench.session.do(Pause())
    during = bench.run(20)
    assert during.paused
    assert during.now_s == before.now_s
    assert during.headlines == before.headlines
    bench.session.do(Pause())
    assert bench.run(1).now_s == before.now_s + 21


def test_an_applied_experiment_that_keeps_its_promise_is_confirmed() -> None:
    bench = Bench()
    bench.compressed()
    told = bench.session.do(Apply(FLAGSHIP))
    assert "kernels = block" in told
    assert bench.lever.asked == [({"kernels": "block"}, "after")]
    during = bench.run(5)
    assert during.trial is not None
    assert (during.trial.windows, during.trial.needed) == (pytest.approx(5, abs=1.1), 20)
    view = bench.run(30)
    assert view.trial is None
    assert finding(view).verdict == "confirmed"
    assert span_names(view) == ("compressed", "after")


def test_an_applied_experiment_without_effect_is_refuted_but_not_hastily() -> None:
    bench = Bench(lever="broken")
    bench.lever.marks = True
    bench.compressed()
    bench.session.do(Apply(FLAGSHIP))
    assert finding(bench.run(15)).verdict in ("likely", "possible")
    assert finding(bench.run(30)).verdict == "refuted"


def test_a_source_that_reports_no_change_gets_the_segment_from_the_session() -> None:
    bench = Bench(lever="silent")
    bench.compressed()
    bench.session.do(Apply(FLAGSHIP))
    view = bench.run(20)
    assert span_names(view) == ("compressed", "after")
    assert view.tags["kernels"] == "block"


def test_an_engine_that_is_not_ours_cannot_be_changed() -> None:
    bench = Bench(lever="")
    view = bench.compressed()
    assert not view.can_apply
    with pytest.raises(UsageError, match="built-in"):
        bench.session.do(Apply(FLAGSHIP))


def test_a_failing_source_is_told_once_and_asked_again() -> None:
    bench = Bench()
    bench.run(10)
    bench.source.polls += [SourceError("refused"), SourceError("refused")]
    bench.session.poll()
    view = bench.session.poll()
    assert not view.alive
    assert view.notices.count("refused") == 1
    assert bench.run(1).alive


def test_a_source_that_ended_stays_on_screen() -> None:
    bench = Bench()
    bench.run(10)
    bench.source.polls.append(Poll([], notices=("pid 1 died",), ended=True))
    bench.session.poll()
    view = bench.session.poll()
    assert view.ended
    assert not view.can_apply
    assert isinstance(headline(view, "kv_resident_bytes").now, Reading)
    assert "pid 1 died" in view.notices


def test_a_recording_holds_what_was_seen_and_closes_with_the_session(tmp_path: Path) -> None:
    from kvscope.sources.recording import RecordingSource

    bench = Bench()
    bench.run(5)
    path = tmp_path / "seen.db"
    bench.session.do(Record(path))
    assert bench.run(10).recording == str(path)
    bench.session.close()
    assert bench.source.closed
    played = RecordingSource(path).poll()
    assert {sample.t for sample in played.samples} >= {START_S + 6, START_S + 15}


def test_the_session_loads_nothing_that_draws() -> None:
    code = "import sys, kvscope.session; print(sorted({'textual', 'rich', 'torch'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
