"""Results as people paste them: whatever tool printed them, a label says what its number is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.sources import open_file_target
from kvscope.sources.find import kind_of_file
from kvscope.sources.stated.named import label_of, of_document
from kvscope.sources.stated.pasted import Reader
from kvscope.sources.stated.result import read_runs


@pytest.mark.parametrize(
    ("label", "quantity", "statistics", "scale"),
    [
        ("Mean TTFT (ms)", "ttft", ("mean",), 1e-3),
        ("Average time-to-first-token [TTFT] (ms)", "ttft", ("mean",), 1e-3),
        ("mean_ttft_ms", "ttft", ("mean",), 1e-3),
        ("TTFT p50 / p95", "ttft", ("p50", "p95"), None),
        ("first_token latency(min, max, ave)", "ttft", ("none", "none", "mean"), None),
        ("Inter Token Latency (ns)", "itl", ("",), 1e-9),
        ("Request Latency Sec Mdn", "e2e", ("p50",), 1),
        ("Output token throughput (tok/s)", "generated", ("",), 1),
        ("Output tokens/s", "generated", ("",), None),
        ("Output_tokens/min", "generated", ("",), 1 / 60),
        ("Req Tput (RPS)", "requests", ("",), 1),
        ("Maximum request concurrency", "clients", ("",), None),
    ],
)
def test_a_label_is_a_statistic_of_a_quantity_in_a_unit(
    label: str, quantity: str, statistics: tuple[str, ...], scale: float | None
) -> None:
    found = label_of(label)
    assert found is not None
    assert (found.quantity, found.statistics, found.scale) == (quantity, statistics, pytest.approx(scale))


@pytest.mark.parametrize(
    "label", ["Peak TTFT spikes", "Time to second token (ms)", "Output token throughput per user", "a"]
)
def test_a_label_that_is_not_whole_a_name_means_nothing(label: str) -> None:
    assert label_of(label) is None


BOX = """\
                 NVIDIA AIPerf | LLM Metrics
┏━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃                   Metric ┃      avg ┃      p99 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│ Time to First Token (ms) │ 1,250.00 │ 2,500.00 │
│ Inter Token Latency (ms) │    12.50 │    20.00 │
│ Output Token Throughput  │   800.00 │      N/A │
│             (tokens/sec) │          │          │
└──────────────────────────┴──────────┴──────────┘
"""
GUIDE = """\
| Benchmark | Request Latency || TTFT       ||
| Strategy  | Sec             || ms         ||
|           | Mdn     | p95    | Mdn  | p95  |
|-----------|---------|--------|------|------|
| constant  | 2.5     | 3.5    | 50.0 | 80.0 |
"""
MARKDOWN = """\
| setup | TTFT p50 / p95 | Output tokens/s | Cache hit |
| --- | ---: | ---: | ---: |
| `a=1` | 0.5 / 2 s | 100 | 50% |
| `a=2` | 0.25 / **1 s** | **150** | 75% |
"""
SPACED = """\
                    f16      q8_0
KV cache (MiB)     64.0      34.0
Generation (t/s)  200.0     150.0
TTFT (ms)          40.0      50.0
"""


def runs(text: str) -> list[dict[str, float]]:
    return [
        {f"{one}.{two}".rstrip("."): value for (one, two), value in run.cells.items()} for run in Reader().read(text)
    ]


def test_a_table_is_read_by_what_its_head_names() -> None:
    assert runs(BOX) == [
        {"ttft.mean": 1.25, "ttft.p99": 2.5, "itl.mean": 0.0125, "itl.p99": 0.02, "generated.mean": 800.0}
    ]
    assert runs(GUIDE) == [{"e2e.p50": 2.5, "e2e.p95": 3.5, "ttft.p50": 0.05, "ttft.p95": 0.08}]
    assert runs(MARKDOWN) == [
        {"ttft.p50": 0.5, "ttft.p95": 2.0, "generated": 100.0, "hits": 0.5},
        {"ttft.p50": 0.25, "ttft.p95": 1.0, "generated": 150.0, "hits": 0.75},
    ]
    assert runs(SPACED) == [
        {"kv_bytes": 64 * 2.0**20, "generated": 200.0, "ttft": 0.04},
        {"kv_bytes": 34 * 2.0**20, "generated": 150.0, "ttft": 0.05},
    ]
    assert [run.kv_bits for run in Reader().read(SPACED)] == [16.0, 8.5]


def test_a_comma_separated_table_is_one_too() -> None:
    text = 'Metric,avg,p99\nTime To First Token (ms),"1,500.0","2,000.0"\nRequest Throughput (per sec),0.5,\n'
    assert runs(text) == [{"ttft.mean": 1.5, "ttft.p99": 2.0, "requests.mean": 0.5}]


def test_a_name_that_comes_again_begins_another_run_under_the_words_before_it() -> None:
    text = (
        "Baseline, bf16 KV:\n```\nMean TPOT (ms): 5.0\nOutput throughput: 90 tok/s\n```\n"
        "With `--kv-cache-dtype fp8`:\n```\nMean TPOT (ms): 6.0\nOutput throughput: 80 tok/s\n```\n"
    )
    first, second = Reader().read(text)
    assert (first.title, first.kv_bits, first.get("tpot", "mean")) == ("Baseline, bf16 KV", 16.0, 0.005)
    assert (second.title, second.kv_bits, second.get("tpot", "mean")) == ("With --kv-cache-dtype fp8", 8.0, 0.006)


def test_two_results_side_by_side_are_two_runs() -> None:
    text = (
        "= auto                    = fp8\nMean TTFT (ms):   10.0            Mean TTFT (ms):   20.0\n"
        "Successful requests:    5           Successful requests:    5\n"
    )
    assert [run.get("ttft", "mean") for run in Reader().read(text)] == [0.01, 0.02]


def test_a_latency_without_a_unit_is_not_taken() -> None:
    assert runs("Average TTFT: 5.0\nOutput throughput: 3 tokens/s\n") == [{"generated": 3.0}]


def test_a_servers_own_lines_are_no_result() -> None:
    assert runs("INFO 05-19 10:13:11 [loggers.py:271] Avg generation throughput: 5.0 tokens/s, Running: 1 reqs\n") == []


def test_a_document_of_any_tool_is_read_by_its_names() -> None:
    document = {
        "successes": {"latency": {"time_to_first_token": {"mean": 0.5, "p50": 0.4}}},
        "output_tokens_per_sec": 9.0,
    }
    run = of_document(document, 1.0)
    assert run.cells == {("ttft", "mean"): 0.5, ("ttft", "p50"): 0.4, ("generated", ""): 9.0}


def test_runs_under_different_loads_are_no_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / "sweep.md"
    path.write_text("| Concurrency | TPOT (ms) | Output tok/s |\n|---|---|---|\n| 1 | 5 | 200 |\n| 32 | 20 | 1600 |\n")
    assert kind_of_file(path) == "result"
    poll = open_file_target(path).poll()
    assert {one.value for one in poll.samples if one.metric == "tokens.generated" and one.value > 0} >= {3200.0}
    assert not poll.marks
    assert any("2 runs under different loads" in line for line in poll.notices)


def test_two_runs_of_kv_types_are_before_and_after_with_their_gaps(tmp_path: Path) -> None:
    path = tmp_path / "two.md"
    path.write_text(
        "KV: bf16\nMedian ITL (ms): 4\nOutput tokens/s: 240\n\nKV: fp8\nMedian ITL (ms): 5\nOutput tokens/s: 190\n"
    )
    first, second = read_runs(path)
    assert (first.means["config.kv_bits"], second.means["config.kv_bits"]) == (16.0, 8.0)
    poll = open_file_target(path).poll()
    assert [mark.name for mark in poll.marks] == ["before", "after"]
    steps = [one.value for one in poll.samples if one.metric == "latency.itl.sum"]
    counts = [one.value for one in poll.samples if one.metric == "latency.itl.count"]
    assert (steps[1] - steps[0]) / (counts[1] - counts[0]) == pytest.approx(0.004)


def test_json_between_words_is_found(tmp_path: Path) -> None:
    path = tmp_path / "pasted.txt"
    path.write_text('```\n# H100\n{"mean_ttft_ms": 20.0, "output_throughput": 50.0, "completed": 9}\n```\n')
    (run,) = read_runs(path)
    assert run.means["latency.ttft"] == pytest.approx(0.02)
