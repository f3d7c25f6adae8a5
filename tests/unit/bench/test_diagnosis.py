"""The matrix: what it runs, how it is split and resumed, and how what was said is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kvscope import faults
from kvscope.bench import _matrix_plan, _matrix_run, diagnosis
from kvscope.bench._matrix_run import Outcome, judged
from kvscope.cli import run
from kvscope.errors import SourceError, UsageError
from kvscope.laboratory import Laboratory, Length
from kvscope.playbook import load_all
from kvscope.result import html, result
from kvscope.sources.recording import RecordingSource
from kvscope.sources.source import Description, Mark, Poll
from kvscope.store import Store
from probes.sample import Sample


def outcome(kind: str, said: str, expected: tuple[str, ...], *, severity: str = "clear", seed: int = 0) -> Outcome:
    named = ({"id": said, "slug": said, "verdict": "likely"},) if said else ()
    return Outcome(kind, f"{'+'.join(expected) or 'well'}/{severity}", seed, expected, named)


SLOWER = Path(__file__).parents[3] / "samples/recordings/memory-down-throughput-flat.likely.jsonl"
RUNS = [
    outcome("faults", "static_reservation", ("static_reservation",)),
    outcome("faults", "", ("static_reservation",), seed=1),
    outcome("faults", "scheduler_cpu_bound", ("tier_switching",), severity="mild"),
    outcome("healthy", "", ()),
    outcome("healthy", "tier_switching", (), seed=1),
]


def test_every_fault_is_run_at_every_severity_it_has() -> None:
    labels = {case.label for case in _matrix_plan.cases(("faults",))}
    assert {"generic_kernel/mild", "generic_kernel/clear", "generic_kernel/severe"} <= labels
    assert {case.names[0] for case in _matrix_plan.cases(("healthy",))} == {"nothing_wrong", "compute_bound"}


def test_a_pair_never_sets_one_knob_twice() -> None:
    pairs = {case.names for case in _matrix_plan.cases(("pairs",))}
    assert ("generic_kernel", "running_cap") in pairs
    assert not any(set(names) == {"split_pools", "fragmentation"} for names in pairs)


def test_faults_of_different_policies_are_no_pair() -> None:
    policies = {name: faults.get(name).knobs.get("policy") for name in faults.names()}
    pairs = {case.names for case in _matrix_plan.cases(("pairs",))}
    assert all(policies[one] == policies[other] for one, other in pairs)
    assert ("fragmentation", "too_sparse") not in pairs


def test_parts_together_are_the_whole() -> None:
    whole = _matrix_plan.cases(("faults",))
    parts = [_matrix_plan.part(whole, f"{index}/4") for index in range(1, 5)]
    assert sorted(case.label for part in parts for case in part) == sorted(case.label for case in whole)
    with pytest.raises(UsageError, match="expected I/N"):
        _matrix_plan.part(whole, "5/4")


@pytest.mark.parametrize(("text", "expected"), [("3", [0, 1, 2]), ("20-22", [20, 21, 22]), ("7-7", [7])])
def test_seeds_are_counted_from_zero_or_named_by_first_and_last(text: str, expected: list[int]) -> None:
    assert list(_matrix_plan.seeds(text)) == expected


@pytest.mark.parametrize("text", ["0", "", "22-20", "-3", "3-", "a-b", "1-2-3"])
def test_seeds_that_name_none_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "diagnosis", f"--seeds={text}"]) == 2
    assert f"--seeds {text!r}: expected N, at least 1, or FIRST-LAST" in capsys.readouterr().err


def test_seeds_named_by_first_and_last_go_on_where_the_log_of_others_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fake(case: _matrix_plan.Case, seeds: list[int], *_: object, **__: object) -> Iterator[Outcome]:
        asked.append(list(seeds))
        yield from (Outcome(case.kind, case.label, seed, case.expected, ()) for seed in seeds)

    monkeypatch.setattr(_matrix_run, "run", fake)
    for seeds in ("2", "1-3", "20-21", "20-21"):
        command = ["bench", "diagnosis", "--only", "generic_kernel", "--severity", "clear", "--kinds", "faults"]
        assert run([*command, "--seeds", seeds, "--log", str(tmp_path / "runs.jsonl")]) == 0
    assert asked == [[0, 1], [2, 3], [20, 21]]


def test_what_was_finished_is_read_back_and_half_a_line_is_not(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    log = diagnosis.log_of(str(path))
    for one in RUNS:
        log.add(one, one.label, one.seed)
    with path.open("a") as file:
        file.write('{"kind": "faults", "lab')
    assert diagnosis.log_of(str(path)).parts() == RUNS


def test_a_kept_run_is_judged_again_as_it_was(tmp_path: Path) -> None:
    source, seen = RecordingSource(SLOWER), Store()
    for mark in (poll := source.poll()).marks:
        seen.mark(mark)
    seen.add(poll.samples)
    books = load_all()
    named, folded, unknown = judged(seen, books, source.describe())
    assert named, "nothing to hold the second judgement against"
    run = replace(RUNS[0], named=named, folded=folded, unknown=unknown)
    _matrix_run.keep(tmp_path / "kept", run, seen, source.describe())
    assert _matrix_run.again(tmp_path / "kept", run, books) == run
    assert not _matrix_run.again(tmp_path / "kept", run, ()).named


def test_a_run_that_was_not_kept_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"static_reservation-clear-0\.db"):
        _matrix_run.again(tmp_path, RUNS[0], ())


def test_right_causes_abstentions_wrong_ones_and_alarms_are_counted() -> None:
    found = diagnosis.result_of(RUNS, {})
    values = {one.name: one.value for one in found.quantities}
    assert values["top1_clear"] == values["abstained_clear"] == 0.5
    assert (values["wrong_mild"], values["false_alarms"]) == (1.0, 0.5)
    assert len(found.warns) == 2
    assert "static_reservation" in html.render(found)
    assert '"runs"' in result.as_json(found)


def test_what_was_there_before_the_fault_is_no_answer() -> None:
    before = {"id": "a", "slug": "tier_switching", "verdict": "likely", "before": True}
    one = replace(RUNS[0], named=(before, *RUNS[0].named))
    assert one.said == "static_reservation"
    assert replace(one, named=(before,)).said == ""


def test_a_fault_that_did_not_come_about_is_left_out_and_told() -> None:
    found = diagnosis.result_of([RUNS[0], replace(RUNS[1], untrue=("sched.waiting >= 1",))], {})
    assert {one.name: one.value for one in found.quantities}["top1_clear"] == 1.0
    assert "Left out, as the engine's counters do not show the fault: 1 (0 of them named)." in found.says


def test_gains_are_counted_where_the_change_was_confirmed() -> None:
    trial = {"finding": "x", "outcome": "confirmed", "expected": 1.5, "bound": 2.0, "measured": 1.6, "error": 0.1}
    far = {**trial, "measured": 2.5}
    runs = [Outcome("faults", "a/clear", seed, ("a",), (), trial=one) for seed, one in enumerate((trial, far))]
    values = {one.name: one.value for one in diagnosis.result_of(runs, {}).quantities}
    assert (values["gain_foretold"], values["gain_above_bound"]) == (0.5, 0.5)


def test_logs_are_judged_together_without_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index, one in enumerate(RUNS):
        diagnosis.log_of(str(tmp_path / f"{index}.jsonl")).add(one, one.label, one.seed)
    logs = [str(path) for path in sorted(tmp_path.glob("*.jsonl"))]
    assert run(["bench", "diagnosis", "--merge", *logs, "-o", str(tmp_path / "found.html")]) == 0
    assert "Confusion matrix" in capsys.readouterr().out
    assert run(["bench", "diagnosis", "--kinds", "fults"]) == 2
    assert "did you mean 'faults'" in capsys.readouterr().err


class Ticking:
    """An engine of one step a second, watched by a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self._read, self._marks = 0, [Mark("warming up", 0.0, {})]

    def describe(self) -> Description:
        return Description("ticking", "builtin", "builtin")

    def poll(self) -> Poll:
        steps = range(self._read, int(self.now) + 1)
        self._read, marks, self._marks = steps.stop, tuple(self._marks), []
        return Poll([Sample("batch.steps", float(step), float(step)) for step in steps], marks)

    def mark(self, name: str) -> None:
        self._marks.append(Mark(name, self.now + 0.5, {}))

    def set(self, knobs: Mapping[str, str], mark: str = "") -> dict[str, str]:
        raise AssertionError(f"{knobs} turned in {mark!r}: nothing is to be changed")

    def knobs(self) -> dict[str, str]:
        return {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def close(self) -> None: ...


def test_unchanged_stretches_are_judged_on_as_much_at_the_end_as_at_the_beginning() -> None:
    engine = Ticking()
    lab = Laboratory(engine, engine, clock=lambda: engine.now, sleep=engine.sleep)
    engine.now = 10.0
    names, sizes = [], []
    for stretch in _matrix_run.stretches(lab, 9):
        names.append([segment.name for segment in lab.store.segments])
        sizes.append(len(lab.store.series("batch.steps")[0]))
        assert stretch.end_s - stretch.start_s > 1
    assert names[0] == ["warming up", "unchanged-0"]
    assert names[-1] == ["unchanged-6", "unchanged-7", "unchanged-8"]
    assert max(sizes[3:]) - min(sizes[3:]) <= 1


class Generating(Ticking):
    """Makes ten tokens a step, or twenty and none in turns of eight steps."""

    def __init__(self, *, even: bool) -> None:
        super().__init__()
        self.even, self.tokens = even, 0.0

    def poll(self) -> Poll:
        poll, more = super().poll(), []
        for step in poll.samples:
            self.tokens += 10 if self.even else 20 * (step.t % 16 < 8)
            more.append(Sample("tokens.generated", self.tokens, step.t))
        return Poll([*poll.samples, *more], poll.marks)


@pytest.mark.parametrize("even", [True, False])
def test_a_gain_is_measured_until_it_is_known_or_long_enough(even: bool) -> None:
    engine = Generating(even=even)
    lab = Laboratory(engine, engine, clock=lambda: engine.now, sleep=engine.sleep)
    segment = lab.stretch("now", Length(8, 8.0, 8.0))
    longer = _matrix_run.until_sure(lab, segment, "generation_tokens_per_s")
    seconds = longer.end_s - longer.start_s
    assert (seconds < 10) if even else (seconds >= _matrix_run.LONGEST_S)


def test_a_scaled_case_has_larger_documents_and_pool_and_is_else_the_same() -> None:
    case = _matrix_plan.cases(("faults",), ("tier_too_small",), ("clear",))[0]
    large = _matrix_plan.scaled(case, 4, "cuda")
    pool, documents = int(case.options[case.options.index("--pool-mib") + 1]), "load.document_tokens"
    assert large.options[large.options.index("--pool-mib") + 1] == str(4 * pool)
    assert large.options[-2:] == ("--device", "cuda")
    assert int(large.faulty[documents]) == 4 * int(case.faulty[documents])
    assert {**large.faulty, documents: ""}.keys() == {**case.faulty, documents: ""}.keys()
    assert _matrix_plan.scaled(case, 1, "cpu").faulty == case.faulty
