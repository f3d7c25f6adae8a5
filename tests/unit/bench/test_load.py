"""A load run sends what it says, counts what came back as benchmarks do, and hides no failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvscope.account import Facts
from kvscope.bench.client.http import address_of
from kvscope.bench.client.levels import Level, LevelRun, LoadPlan, poisson
from kvscope.bench.client.measures import error_of_quantile, measure_run, measures, parse_slo
from kvscope.bench.client.server import Ask, Outcome, find_server, token_times
from kvscope.bench.load import bound_of
from kvscope.bench.workload import lengths
from kvscope.bound import Load
from kvscope.cli import run
from kvscope.devices import find
from kvscope.errors import SourceError, UsageError
from kvscope.plan import geometry
from tests.unit.bench.double import Double, serving

CONFIG = Path(__file__).parents[3] / "samples" / "configs" / "qwen3-8b.json"


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as found:
        yield found


def load(double: Double, *words: str) -> int:
    return run(["bench", "load", double.url, "--watch", "none", "--requests", "6", "--output-tokens", "4", *words])


def report_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def ask_once(double: Double, mode: str, tokens: int = 4) -> Outcome:
    double.mode = mode

    async def once() -> Outcome:
        server = await find_server(address_of(double.url))
        return await server.complete(Ask([1, 2, 3], 3, tokens))

    return asyncio.run(once())


def answered(sent: float, first: float, gap: float, tokens: int, prompt: int = 10) -> Outcome:
    times = tuple(sent + first + gap * index for index in range(tokens))
    return Outcome(sent, prompt, tokens, 0.0, times, prompt, tokens)


def level(outcomes: list[Outcome], warm: list[Outcome] | None = None) -> LevelRun:
    return LevelRun(Level("closed", 1.0), 0, tuple(warm or []), tuple(outcomes), 0.0)


def test_latencies_are_what_benchmarks_mean_by_them() -> None:
    found = measure_run(level([answered(float(i), 0.5, 0.1, 11) for i in range(10)]), {})
    assert found["ttft_p50_s"].value == pytest.approx(0.5)
    assert found["tpot_p99_s"].value == pytest.approx(0.1)
    assert found["itl_p90_s"].value == pytest.approx(0.1)
    assert found["e2e_p50_s"].value == pytest.approx(1.5)
    assert found["output_tokens_per_s"].value == pytest.approx(110 / 10.5)
    assert found["total_tokens_per_s"].value == pytest.approx(210 / 10.5)


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    found = measure_run(level([answered(float(i), 0.5, 0.0, 1) for i in range(5)]), {})
    assert "tpot_p50_s" not in found
    assert "itl_p50_s" not in found


def test_goodput_counts_requests_that_keep_every_limit_and_none_that_failed() -> None:
    failed = Outcome(2.0, 10, 5, error="refused")
    run_of = level([answered(0.0, 0.1, 0.01, 5), answered(1.0, 5.0, 0.01, 5), failed])
    found = measure_run(run_of, parse_slo("ttft=200ms,tpot=0.05s"))
    assert found["good_share"].value == pytest.approx(1 / 3)
    assert found["failed_share"].value == pytest.approx(1 / 3)


def test_steady_throughput_leaves_out_the_tail_in_which_the_server_runs_empty() -> None:
    busy = [answered(float(i), 0.1, 0.1, 10) for i in range(20)]
    slow = answered(19.0, 0.1, 1.0, 50)
    found = measure_run(level([*busy, slow]), {})
    assert found["steady_output_tokens_per_s"].value > 2 * found["output_tokens_per_s"].value


def test_arrivals_are_poisson_and_repeat_with_their_seed() -> None:
    times = poisson(2.0, 4000, 7)
    assert times == poisson(2.0, 4000, 7) != poisson(2.0, 4000, 8)
    assert times[-1] / 4000 == pytest.approx(0.5, rel=0.05)
    gaps = sorted(after - before for before, after in pairwise(times))
    assert gaps[len(gaps) // 2] == pytest.approx(0.5 * 0.693, rel=0.07)


def test_the_same_settings_send_the_same_requests() -> None:
    plan = LoadPlan((Level("closed", 2.0),), lengths.DEFAULT, (4, 9))
    assert plan.pairs(plan.levels[0]) == plan.pairs(plan.levels[0])
    assert plan.warm(plan.levels[0]) == 2
    assert len(plan.pairs(plan.levels[0])) == 22


@pytest.mark.parametrize(
    ("mode", "tokens_out", "chunks", "error"),
    [
        ("fine", 4, 4, ""),
        ("plain", 4, 4, ""),
        ("packed", 4, 2, ""),
        ("early", 2, 2, ""),
        ("refuse", 0, 0, "HTTP 400: ignore_eos is not supported"),
        ("error-event", 0, 0, "too many requests"),
        ("cut", 4, 4, "the stream broke off"),
        ("silent", 0, 0, "the stream ended without a token"),
    ],
)
def test_what_a_server_does_is_in_the_outcome(
    double: Double, mode: str, tokens_out: int, chunks: int, error: str
) -> None:
    found = ask_once(double, mode)
    assert (found.tokens_out, len(found.token_s), found.error) == (tokens_out, chunks, error)
    assert found.ok is (error == "")


def test_a_quantile_near_the_slowest_of_few_requests_has_no_error() -> None:
    values = [float(n) for n in range(12)]
    assert error_of_quantile(values, 0.5) is not None
    assert error_of_quantile(values, 0.9) is None
    assert error_of_quantile(values * 40, 0.99) is not None


@pytest.mark.parametrize(
    ("shown", "tokens", "counted"),
    [
        ("xx", 2, "01"),
        ("x-x-", 4, "0123"),
        ("-x", 2, "01"),
        ("-xx", 2, "12"),
        ("xx-", 2, "01"),
        ("-x-x", 6, "123"),
        ("x-x", None, "02"),
        ("---", 9, ""),
        ("--", 2, "01"),
    ],
)
def test_a_chunk_without_text_is_a_token_where_the_count_of_tokens_says_so(
    shown: str, tokens: int | None, counted: str
) -> None:
    chunks = [(float(index), letter == "x") for index, letter in enumerate(shown)]
    assert token_times(chunks, tokens) == tuple(float(index) for index in counted)


def test_every_request_asks_for_its_exact_length_and_its_full_answer(
    double: Double, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(double, "--clients", "2", "--format", "json") == 0
    report = report_of(capsys)
    assert len(double.bodies) == 2 + 6
    assert all(body["ignore_eos"] and body["max_tokens"] == 4 and body["stream"] for body in double.bodies)
    assert max(len(body["prompt"]) for body in double.bodies) <= 4096 - 4 - 16
    assert len({tuple(body["prompt"]) for body in double.bodies}) == 8
    names = {one["name"] for one in report["quantities"]}
    assert {"c2.ttft_p50_s", "c2.tpot_p90_s", "c2.itl_p99_s", "c2.e2e_p50_s", "c2.goodput_per_s"} <= names
    assert report["warmup"][0]["requests"] == 2
    assert report["warns"] == [text for text in report["warns"] if "woke up" in text]


def test_a_closed_loop_never_has_more_requests_outstanding_than_clients(double: Double) -> None:
    assert load(double, "--clients", "3", "--requests", "20") == 0
    assert double.most_outstanding <= 3


def test_open_loop_and_trace_send_what_is_due(
    double: Double, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(double, "--rate", "500", "--warmup", "1", "--format", "json") == 0
    assert any(one["name"] == "r500.ttft_p50_s" for one in report_of(capsys)["quantities"])
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "".join(json.dumps({"timestamp": i, "input_length": 7, "output_length": 3}) + "\n" for i in range(9))
    )
    double.bodies.clear()
    assert load(double, "--trace", str(path), "--warmup", "1", "--format", "json") == 0
    assert [(len(body["prompt"]), body["max_tokens"]) for body in double.bodies] == [(7, 3)] * 9


def test_a_conversation_repeats_what_was_said_before(double: Double) -> None:
    assert load(double, "--clients", "1", "--turns", "2", "--requests", "2", "--warmup", "0") == 0
    first, second = double.bodies[:2]
    assert second["prompt"][: len(first["prompt"])] == first["prompt"]
    assert len(second["prompt"]) == len(first["prompt"]) + 4 + 64


def test_prompts_share_the_prefix_asked_for(double: Double) -> None:
    assert load(double, "--clients", "1", "--mix", "100:100", "--shared-prefix", "40") == 0
    assert len({tuple(body["prompt"][:40]) for body in double.bodies}) == 1
    assert len({tuple(body["prompt"][40:]) for body in double.bodies}) == len(double.bodies)


def test_text_prompts_are_sized_by_what_the_server_counts(double: Double) -> None:
    assert load(double, "--clients", "1", "--mix", "100:100", "--text") == 0
    assert {len(body["prompt"].split()) for body in double.bodies[1:]} == {50}


def test_failures_are_counted_and_said(double: Double, capsys: pytest.CaptureFixture[str]) -> None:
    double.mode = "early"
    assert load(double, "--clients", "1", "--format", "json") == 0
    assert "ended early" in " ".join(report_of(capsys)["warns"])
    double.mode = "refuse"
    assert load(double, "--clients", "1") == 4
    assert "every request failed: HTTP 400: ignore_eos is not supported" in capsys.readouterr().err


def test_an_interrupted_run_goes_on_where_it_stopped(
    double: Double, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "run.log")
    assert load(double, "--clients", "1,2", "--log", log, "--format", "json") == 0
    whole = report_of(capsys)
    lines = Path(log).read_text().splitlines()
    Path(log).write_text("\n".join([*lines[:2], lines[2][:40]]) + "\n")
    double.bodies.clear()
    assert load(double, "--clients", "1,2", "--log", log, "--format", "json") == 0
    assert len(double.bodies) == 8
    again = report_of(capsys)
    kept = [[q for q in report["quantities"] if q["name"] == "c1.e2e_p50_s"] for report in (whole, again)]
    assert kept[0][0]["value"] == pytest.approx(kept[1][0]["value"], abs=2e-6)
    assert load(double, "--clients", "1,2", "--log", log, "--seed", "5") == 2
    assert "was written with seed 0, now it is 5" in capsys.readouterr().err


def test_repeats_of_one_load_give_the_floor_below_which_nothing_is_a_change(
    double: Double, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "a.json")
    assert load(double, "--clients", "1", "--repeat", "2", "-o", path) == 0
    assert "A/A floor" in capsys.readouterr().out
    assert run(["compare", path, path, "--format", "json"]) == 0
    assert not [one for one in report_of(capsys)["changes"] if one["verdict"] == "changed"]


def test_three_repeats_are_judged_by_what_they_differ_by() -> None:
    runs = [level([answered(float(i), 0.5 + wait, 0.1, 11) for i, wait in enumerate((0.0, 9.0) * 5)]) for _ in range(3)]
    assert (measures(runs[:1], {}).quantities["ttft_p50_s"].error or 0.0) > 1
    assert measures(runs, {}).quantities["ttft_p50_s"].error == pytest.approx(0.0, abs=1e-9)


def test_who_is_no_such_server_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "load", "http://127.0.0.1:9", "--quick"]) == 3
    assert "expected an OpenAI-compatible server" in capsys.readouterr().err
    with pytest.raises(SourceError):
        asyncio.run(find_server(address_of("127.0.0.1:9")))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--clients", "0"], "expected whole numbers above 0"),
        (["--clients", "1.5"], "expected whole numbers above 0"),
        (["--rate", "fast"], "expected numbers above 0"),
        (["--slo", "tftt=1s"], "did you mean 'ttft'"),
        (["--slo", "ttft"], "expected NAME=TIME"),
        (["--output-tokens", "9-3"], "expected a number of tokens or LOW-HIGH"),
        (["--output-tokens", "4090"], "fewer --output-tokens?"),
        (["--speed", "2"], "--speed without --trace"),
        (["--requests", "1"], "expected at least 2"),
        (["--turns", "2", "--rate", "1"], "expected --clients"),
        (["--model", "other"], "no model 'other'"),
    ],
)
def test_a_mistake_is_one_line(double: Double, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert load(double, *words) in (2, 3)
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="not an address"):
        address_of("ftp://host")


def test_each_level_has_the_bound_of_its_own_batch_and_context_beside_what_was_measured() -> None:
    facts = Facts(model=geometry(CONFIG), device=find("H200"), sources=("config.json", "H200"))
    outcomes = [answered(0.0, 0.5, 0.01, 51, 1000) for _ in range(8)]
    found = measures([LevelRun(Level("closed", 8.0), 0, (), tuple(outcomes), 0.0)], {})
    table = bound_of([found], facts)
    assert table is not None
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["batch"] == pytest.approx(8 * 0.5, abs=0.1), "half of each request's time is decode"
    assert row["context"] == 1026
    floor = facts.floor(Load(4.0, 1025.5))
    assert floor is not None
    assert row["explained"] == pytest.approx(floor.most_s / 0.01, rel=0.01)


def test_without_a_model_or_a_device_there_is_no_bound_to_print() -> None:
    assert bound_of([], Facts()) is None
