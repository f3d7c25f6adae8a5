"""Fifteen mistakes that other tools were seen to make on live pages (W1 to W15). Ours must not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvscope import signals
from kvscope.cli import run
from kvscope.diagnose import diagnose
from kvscope.errors import EXIT_FINDING, EXIT_OK, EXIT_SOURCE
from kvscope.finding import Diagnosis
from kvscope.playbook import load_all
from kvscope.signals.reading import Missing, Reading
from kvscope.sources import open_target
from kvscope.store import Store
from probes.sample import Sample

ROOT = Path(__file__).parents[2]
SCRAPES = ROOT / "samples" / "scrapes"
CAPTURE = ROOT / "samples" / "captures" / "admission-limited" / "pages.jsonl.gz"
CACHE = (
    'vllm:cache_config_info{{block_size="16",num_gpu_blocks="1000",kv_cache_size_tokens="16000",'
    'num_gpu_blocks_override="None",enable_prefix_caching="{prefix}"}} 1\n'
)


def page(t: int, **values: float) -> str:
    """A vLLM page in which counters grow by their rate each second; gauges are given with a leading ``g_``."""
    lines = []
    for name, value in values.items():
        bare = name.removeprefix("g_")
        lines.append(f"vllm:{bare} {value if name != bare else 1e6 + value * t}")
    return "\n".join(lines) + "\n" + CACHE.format(prefix="True")


def series(path: Path, pages: Sequence[str]) -> Path:
    rows = [json.dumps({"t": 1000.0 + t, "text": text}) for t, text in enumerate(pages)]
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    return path


def watch(path: Path) -> tuple[Store, Diagnosis]:
    source = open_target(str(path))
    store = Store()
    store.add(source.poll().samples)
    return store, diagnose(store, load_all(), source.describe(), include_silent=True)


def told(store: Store, name: str) -> Reading | Missing:
    return signals.compute(name, store, store.segments[-1])


def value(store: Store, name: str) -> float:
    found = told(store, name)
    assert isinstance(found, Reading), found
    return found.value


FULL = {
    "g_kv_cache_usage_perc": 0.98,
    "g_num_requests_running": 20.0,
    "g_num_requests_waiting": 12.0,
    "generation_tokens_total": 420.0,
    "num_preemptions_total": 3.0,
    "iteration_tokens_total_count": 21.0,
    "iteration_tokens_total_sum": 420.0,
}


def test_w1_a_page_without_an_engine_is_refused_and_never_called_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", str(SCRAPES / "dcgm-4.8.2.prom")]) == EXIT_SOURCE
    shown = capsys.readouterr()
    assert "readings of a machine" in shown.err
    assert "ok" not in shown.out.lower()


def test_w2_a_counter_of_last_week_is_no_finding_today(tmp_path: Path) -> None:
    calm = {**FULL, "num_preemptions_total": 0.0, "g_kv_cache_usage_perc": 0.2, "g_num_requests_waiting": 0.0}
    store, found = watch(series(tmp_path / "one.jsonl.gz", [page(0, **calm)]))
    lone = told(store, "preemptions_per_s")
    assert isinstance(lone, Missing)
    assert "since the engine started" in lone.reason
    store, found = watch(series(tmp_path / "many.jsonl.gz", [page(t, **calm) for t in range(12)]))
    assert value(store, "preemptions_per_s") == 0
    assert all(one.verdict in ("silent", "needs_data") for one in found.findings)


def test_w3_rates_and_quantiles_come_from_deltas_and_what_is_missing_is_said(tmp_path: Path) -> None:
    def text(t: int) -> str:
        # A second of history is slow; everything since is fast.
        slow, fast = 1000, 100 * t
        return (
            f'vllm:time_to_first_token_seconds_bucket{{le="0.1"}} {fast}\n'
            f'vllm:time_to_first_token_seconds_bucket{{le="10.0"}} {slow + fast}\n'
            f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {slow + fast}\n'
            f"vllm:time_to_first_token_seconds_count {slow + fast}\n"
            f"vllm:time_to_first_token_seconds_sum {5000 + 5 * t}\n"
            f"vllm:generation_tokens_total {420 * t}\n"
        )

    store, found = watch(series(tmp_path / "ttft.jsonl.gz", [text(t) for t in range(12)]))
    assert value(store, "ttft_p95_s") <= 0.1
    assert value(store, "ttft_mean_s") == pytest.approx(0.05)
    assert value(store, "generation_tokens_per_s") == pytest.approx(420)
    unknown = {one.signal for one in found.unknown}
    assert {"kv_usage_ratio", "waiting_requests"} <= unknown
    assert not unknown & {"ttft_mean_s"}


def test_w4_a_steady_bad_state_is_as_bad_as_a_worsening_one(tmp_path: Path) -> None:
    store, _ = watch(series(tmp_path / "full.jsonl.gz", [page(t, **FULL) for t in range(12)]))
    rate = told(store, "preemptions_per_s")
    assert isinstance(rate, Reading)
    assert rate.value - rate.error > 2.9
    known = [book for book in load_all() if "preemptions_per_s" in {check.signal for check in book.symptom}]
    if not known:
        pytest.skip("no playbook has preemptions as its symptom")
    _, found = watch(tmp_path / "full.jsonl.gz")
    assert any(one.id == book.id and one.verdict != "silent" for book in known for one in found.findings)


def test_w5_old_and_new_names_are_one_metric_and_a_metric_under_no_name_is_said(tmp_path: Path) -> None:
    for name in ("gpu_cache_usage_perc", "kv_cache_usage_perc"):
        store, _ = watch(series(tmp_path / f"{name}.jsonl.gz", [page(t, **{f"g_{name}": 0.5}) for t in range(5)]))
        assert value(store, "kv_usage_ratio") == 0.5
    source = open_target(str(series(tmp_path / "none.jsonl.gz", [page(0, g_num_requests_running=1.0)])))
    said = "\n".join(source.poll().notices)
    assert "kv.usage_ratio: not on the page under any known name (vllm:kv_cache_usage_perc" in said


def test_w6_shares_are_shares_rates_are_per_second_and_a_finding_is_told_once(tmp_path: Path) -> None:
    store, found = watch(series(tmp_path / "full.jsonl.gz", [page(t, **FULL) for t in range(60)]))
    assert value(store, "generation_tokens_per_s") == pytest.approx(420)
    assert value(store, "kv_usage_ratio") == pytest.approx(0.98)
    ids = [one.id for one in found.findings]
    assert len(ids) == len(set(ids))
    low = {**FULL, "g_kv_cache_usage_perc": 0.01}
    store, _ = watch(series(tmp_path / "low.jsonl.gz", [page(t, **low) for t in range(12)]))
    assert value(store, "kv_usage_ratio") < 0.9


def test_w7_no_two_findings_advise_opposite_actions(tmp_path: Path) -> None:
    _, found = watch(series(tmp_path / "full.jsonl.gz", [page(t, **FULL) for t in range(30)]))
    advice: dict[str, set[bool]] = {}
    for one in found.findings:
        for knob, text in one.experiment.set if one.experiment and one.verdict in ("likely", "possible") else ():
            advice.setdefault(knob, set()).add(text.startswith(("x0", "-")))
    assert all(len(ways) == 1 for ways in advice.values())
    roots = [one for one in found.findings if one.verdict in ("likely", "possible") and not one.explained_by]
    assert len({one.slug for one in roots}) == len(roots)


def test_w8_a_setting_that_is_on_is_read_and_never_advised(tmp_path: Path) -> None:
    path = series(tmp_path / "hit.jsonl.gz", [page(t, prefix_cache_queries_total=100.0, **FULL) for t in range(12)])
    source = open_target(str(path))
    source.poll()
    assert source.describe().tags["prefix_caching"] == "on"
    _, found = watch(path)
    said = " ".join(line for one in found.findings for line in (*one.fix, one.experiment.run if one.experiment else ""))
    assert "--enable-prefix-caching" not in said


def test_w9_the_same_server_against_itself_confirms_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = str(ROOT / "samples" / "quiet" / "synthetic-dense-unchanged.jsonl")
    assert run(["diagnose", quiet, "--baseline", quiet, "--format", "json"]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert not [one for one in found["findings"] if one["verdict"] in ("confirmed", "likely")]


def test_w10_an_engine_without_a_cache_has_no_hit_rate_at_all() -> None:
    store = Store()
    store.add(Sample("prefix.queries", 0.0, float(t)) for t in range(9))
    store.add(Sample("prefix.hits", 0.0, float(t)) for t in range(9))
    found = told(store, "prefix_hit_rate")
    assert isinstance(found, Missing)
    assert "no prompt token was looked up" in found.reason


def test_w11_decode_with_busy_multiprocessors_is_bound_by_memory() -> None:
    store = Store()
    for t in range(9):
        for metric, share in (("gpu.mem_bw_util", 0.82), ("gpu.tensor_active", 0.08), ("gpu.sm_active", 0.61)):
            store.add([Sample(metric, share, float(t), (("gpu", "0"),))])
    assert value(store, "gpu_memory_over_compute") == pytest.approx(10.25)


def test_w12_no_number_is_shown_that_nobody_measured() -> None:
    store = Store()
    store.add(Sample("engine.info", 1.0, float(t), (("engine", "vllm"),)) for t in range(9))
    readings = [name for name in signals.names() if isinstance(told(store, name), Reading)]
    assert readings == []


def test_w13_what_listens_listens_on_this_machine_only_unless_told_otherwise() -> None:
    import argparse

    from kvscope.commands import serve

    parser = argparse.ArgumentParser()
    serve.configure(parser)
    assert parser.parse_args([]).host == "127.0.0.1"


def test_w14_the_exit_code_says_what_the_report_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(CAPTURE)]) == EXIT_FINDING
    assert run(["diagnose", str(CAPTURE), "--fail-on", "confirmed"]) == EXIT_OK
    assert "LIKELY" in capsys.readouterr().out.upper()


@pytest.mark.parametrize(
    "target",
    ["127.0.0.1:9", "http://127.0.0.1:9/metrics", "127.0.0.1:9,127.0.0.1:10", "prom+http://127.0.0.1:9", "999999"],
)
def test_w15_nothing_there_is_one_clear_line_and_no_traceback(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", target]) == EXIT_SOURCE
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert shown.err.startswith("kvscope: ")
    assert len(shown.err.strip().splitlines()) == 1
