"""Two sides are compared by their intervals: noise is never called a change, and too little data never the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.cli import run
from kvscope.result.comparison import Change, Side, compare
from kvscope.result.result import Quantity

DEMO = "samples/recordings/memory-down-throughput-flat.confirmed.cpu.jsonl"
CAPPED = "samples/recordings/admission-capped.likely.jsonl"


def one(before: Quantity, after: Quantity, within: float = 0.05) -> Change:
    a, b = (Side("file", "all", {}, {"x": quantity}) for quantity in (before, after))
    return compare(a, b, within).changes[0]


@pytest.mark.parametrize(
    ("before", "after", "unit", "verdict"),
    [
        ((100, 1), (130, 1), "s", "changed"),
        ((100, 1), (101, 1), "s", "same"),
        ((100, 20), (115, 20), "s", "unclear"),
        ((100, 20), (101, 20), "s", "unclear"),
        ((0.001, 0.0001), (0.002, 0.0001), "ratio", "same"),
        ((0.1, 0.01), (0.5, 0.01), "ratio", "changed"),
        ((0, 0), (0, 0), "s", "same"),
        ((0, 0), (5, 1), "s", "changed"),
        ((0, 0), (5, 9), "s", "unclear"),
        ((100, None), (200, 1), "s", "unclear"),
    ],
)
def test_the_interval_decides(
    before: tuple[float, float | None], after: tuple[float, float | None], unit: str, verdict: str
) -> None:
    assert one(Quantity("x", before[0], unit, before[1]), Quantity("x", after[0], unit, after[1])).verdict == verdict


def test_a_change_is_good_only_where_a_direction_is_better() -> None:
    assert one(Quantity("x", 100, "s", 1, "lower"), Quantity("x", 50, "s", 1, "lower")).good is True
    assert one(Quantity("x", 100, "s", 1, "higher"), Quantity("x", 50, "s", 1, "higher")).good is False
    assert one(Quantity("x", 100, "s", 1), Quantity("x", 50, "s", 1)).good is None


def test_one_recording_is_compared_with_itself_by_segments(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", DEMO, DEMO, "--segments", "dense,compressed", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    verdicts = {change["name"]: change["verdict"] for change in report["changes"]}
    assert verdicts["kv_resident_bytes"] == "changed"
    assert verdicts["running_requests"] == "same"
    assert verdicts["prefill_time_share"] == "unclear"
    assert {"tag": "policy", "a": "full", "b": "combined"} in report["tags"]
    assert report["a"]["other_segments"] == ["compressed", "verified"]


def test_the_same_segment_twice_has_no_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", DEMO, DEMO]) == 0
    assert "Changed: 0" in capsys.readouterr().out


def test_another_load_is_said_before_any_number(capsys: pytest.CaptureFixture[str]) -> None:
    a = Side("a", "all", {"workload": "short"}, {})
    b = Side("b", "all", {"workload": "long"}, {})
    assert compare(a, b).load_differs == ("workload",)
    assert run(["compare", DEMO, CAPPED]) == 0
    assert "differ: what changed may come from there" in capsys.readouterr().out


def test_results_of_benchmarks_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("a", 1.0), ("b", 2.0)):
        quantity = Quantity("ttft_p50_s", value, "s", 0.01, "lower").as_json()
        (tmp_path / f"{name}.json").write_text(json.dumps({"schema": 1, "bench": "load", "quantities": [quantity]}))
    assert run(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "+100.0 % ± 2.2  worse" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([DEMO, DEMO, "--segments", "dense"], "expected A,B"),
        ([DEMO, DEMO, "--segments", "dense,compresed"], "did you mean 'compressed'"),
        ([DEMO, DEMO, "--within", "0"], "more than 0"),
        ([DEMO, DEMO, "--format", "markdown"], "expected text or json"),
        ([DEMO, "README.json"], "README.json"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *words]) in (2, 3)
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": 1}',
        "[1]",
        '{"schema": "\\u001b[31m"}',
        '{"schema": 1, "bench": "a", "tags": []}',
        '{"schema": 1, "bench": "a", "settings": [1]}',
        '{"schema": 1, "bench": "a", "quantities": [5]}',
        '{"schema": 1, "bench": "a", "quantities": [{"name": "\\u202ea", "value": 1e999, "unit": "s"}]}',
        '{"schema": 1, "bench": "a", "quantities": [{"name": "a", "value": 1, "unit": "s", "better": ["up"]}]}',
    ],
)
def test_a_file_that_is_no_result_is_named_in_a_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text(text)
    assert run(["compare", str(tmp_path / "x.json"), DEMO]) == 2
    said = capsys.readouterr().err
    assert "expected the JSON result of a kvscope bench command" in said
    assert said[:-1].isprintable()


@pytest.mark.parametrize(("repeats", "said"), [((1, 1), "A and B ran once"), ((3, 1), "B ran once"), ((3, 3), "")])
def test_a_benchmark_that_ran_once_is_said_to_know_no_noise_between_runs(
    repeats: tuple[int, int], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, repeat, value in zip(paths, repeats, (1.0, 2.0), strict=True):
        quantity = {"name": "x", "value": value, "unit": "s", "error": 0.01, "better": "lower"}
        path.write_text(
            json.dumps({"schema": 1, "bench": "load", "settings": {"repeat": repeat}, "quantities": [quantity]})
        )
    assert run(["compare", *map(str, paths)]) == 0
    told = capsys.readouterr().out
    assert "Changed: 1" in told
    assert (said in told) if said else ("ran once" not in told)
