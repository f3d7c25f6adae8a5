"""What a page says and does not mean: the surprises met on running vLLM servers, each on its capture or a made page.

Captures that are not shipped are read where ``KVSCOPE_CAPTURES`` names their folder.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path

import pytest

from kvscope import signals
from kvscope.diagnose import diagnose
from kvscope.finding import Diagnosis
from kvscope.playbook import load_all
from kvscope.signals.reading import Missing, Reading
from kvscope.sources import maps, open_target
from kvscope.sources._page import PageReader
from kvscope.sources.maps import vllm
from kvscope.store import Store

SAMPLES = Path(__file__).parents[2] / "samples"
ELSEWHERE = os.environ.get("KVSCOPE_CAPTURES", "")
SHIPPED = {
    "08_admission_limited": SAMPLES / "captures/admission-limited",
    "19_api_servers_2_multiprocess_page": SAMPLES / "captures/two-api-servers",
}


@cache
def capture(name: str) -> tuple[Store, Diagnosis]:
    folder = SHIPPED.get(name) or Path(ELSEWHERE or ".") / name
    if not (folder / "pages.jsonl.gz").exists():
        pytest.skip(f"KVSCOPE_CAPTURES names no folder with {name}")
    return watched(folder / "pages.jsonl.gz")


def watched(path: Path) -> tuple[Store, Diagnosis]:
    source = open_target(str(path))
    store, poll = Store(), source.poll()
    store.add(poll.samples)
    return store, diagnose(store, load_all(), source.describe())


def made(path: Path, *pages: str) -> tuple[Store, Diagnosis]:
    rows = [json.dumps({"t": 1000.0 + t, "text": text}) for t, text in enumerate(pages)]
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    return watched(path)


def told(store: Store, name: str) -> Reading | Missing:
    return signals.compute(name, store, store.segments[-1])


def value(store: Store, name: str) -> float:
    found = told(store, name)
    assert isinstance(found, Reading), found
    return found.value


def caveats(name: str) -> str:
    return " ".join(entry.caveat for entry in vllm.MAP if entry.name == name)


def shown(found: Diagnosis) -> set[str]:
    return {one.slug for one in found.findings if one.verdict in ("likely", "possible")}


def test_1_a_limit_on_running_requests_is_inferred_though_it_is_not_on_the_page() -> None:
    store, found = capture("08_admission_limited")
    bound = told(store, "cap_bound_share")
    assert isinstance(bound, Reading)
    assert bound.source.startswith("inferred: none is reported, the most seen was 4")
    assert shown(found) == {"admission_limited"}


def test_2_memory_binds_at_two_thirds_of_the_pool_and_no_limit_is_blamed(tmp_path: Path) -> None:
    pages = [
        "vllm:num_requests_running 3\nvllm:num_requests_waiting 5\nvllm:kv_cache_usage_perc 0.65\n"
        f"vllm:num_preemptions_total 0\nvllm:generation_tokens_total {90 * t}\n"
        for t in range(20)
    ]
    _, found = made(tmp_path / "made.jsonl.gz", *pages)
    assert "admission_limited" not in shown(found)


def test_3_a_low_usage_says_nothing_of_a_pool_full_of_cached_prefixes(tmp_path: Path) -> None:
    assert "count as free" in caveats("vllm:kv_cache_usage_perc")
    page = "sglang:token_usage 0.02\nsglang:kv_used_tokens 2\n"
    page += "sglang:kv_evictable_tokens 70\nsglang:kv_available_tokens 28\n"
    store, _ = made(tmp_path / "made.jsonl.gz", *[page] * 5)
    assert value(store, "kv_usage_ratio") == pytest.approx(0.02)
    assert value(store, "kv_occupied_share") == pytest.approx(0.72)


@pytest.mark.parametrize("name", ["11_prefix_thrash_pool_small", "20b_kv_events_thrash"])
def test_4_a_page_does_not_tell_a_small_pool_from_traffic_that_never_repeats(name: str) -> None:
    store, found = capture(name)
    assert value(store, "prefix_hit_rate") < 0.01
    # Whatever is said of it, it is not said with certainty from the page alone.
    assert not [one for one in found.findings if one.verdict == "likely" and one.slug.startswith("prefix_")]


def test_5_no_evicted_block_is_no_lifetime_of_zero(tmp_path: Path) -> None:
    page = "vllm:num_requests_running 1\nvllm:kv_block_lifetime_seconds_sum 0\nvllm:kv_block_lifetime_seconds_count 0\n"
    store, _ = made(tmp_path / "made.jsonl.gz", *[page] * 5)
    assert isinstance(told(store, "block_lifetime_mean_s"), Missing)
    plain, _ = made(tmp_path / "plain.jsonl.gz", *["vllm:num_requests_running 1\n"] * 5)
    nobody = told(plain, "block_lifetime_mean_s")
    assert isinstance(nobody, Missing)
    assert "--kv-cache-metrics" in nobody.remedy


def test_6_bytes_of_a_pool_made_by_an_override_are_unknown() -> None:
    store, _ = capture("07_kv_too_small_preempt")
    assert not store.keys("kv.reserved_bytes")
    unknown = told(store, "kv_resident_bytes")
    assert isinstance(unknown, Missing)
    assert "--num-gpu-blocks-override" in unknown.remedy


def test_7_and_8_waiting_and_work_after_a_preemption_are_where_no_counter_looks() -> None:
    assert "ends at the first scheduling" in caveats("vllm:request_queue_time_seconds")
    assert "preemption is left out" in caveats("vllm:prefix_cache_queries_total")


def test_9_prompt_tokens_include_cached_ones_and_the_computed_ones_are_told_apart() -> None:
    store, _ = capture("09_prefix_friendly")
    assert value(store, "prompt_tokens_per_s") > 5 * value(store, "prefilled_tokens_per_s")
    assert value(store, "prefix_hit_rate") == pytest.approx(0.92, abs=0.02)


def test_10_a_histogram_named_total_gives_the_steps_of_the_engine() -> None:
    store, _ = capture("19_api_servers_2_multiprocess_page")
    assert value(store, "tokens_per_step") == pytest.approx(6.2, rel=0.1)


def test_11_one_snapshot_of_a_gauge_is_not_a_mean(tmp_path: Path) -> None:
    store, _ = made(tmp_path / "one.jsonl.gz", "vllm:num_requests_running 7\nvllm:num_requests_waiting 1\n")
    lone = told(store, "running_requests")
    assert isinstance(lone, Missing)
    assert lone.remedy.startswith("watch for longer")


def test_12_a_multiprocess_page_tells_a_restart_by_counters_alone() -> None:
    with gzip.open(SHIPPED["19_api_servers_2_multiprocess_page"] / "pages.jsonl.gz", "rt") as file:
        first, *_, last = [json.loads(row)["text"] for row in file]
    assert "process_start_time_seconds" not in first
    reader = PageReader(vllm)
    assert not reader.read(first, 1.0).restarted
    assert not reader.read(last, 2.0).restarted
    assert reader.read(first, 3.0).restarted


def test_13_engine_cores_behind_one_page_add_up() -> None:
    store, _ = capture("18_data_parallel_2_engines")
    running = store.series("sched.running")[1]
    assert max(running) == 8


def test_14_requests_turned_away_are_counted_and_not_among_the_finished(tmp_path: Path) -> None:
    pages = [
        f'vllm:admission_rejections_total{{reason="max_num_queued_reqs"}} {6 * t}\n'
        f'vllm:request_success_total{{finished_reason="stop"}} {t}\n'
        for t in range(9)
    ]
    store, _ = made(tmp_path / "made.jsonl.gz", *pages)
    assert (value(store, "rejections_per_s"), value(store, "requests_per_s")) == (6, 1)


def test_15_a_counter_that_stays_zero_for_want_of_a_flag_is_no_measured_zero(tmp_path: Path) -> None:
    page = "vllm:external_prefix_cache_queries_total 0\nvllm:external_prefix_cache_hits_total 0\n"
    page += "vllm:num_requests_running 1\n"
    store, _ = made(tmp_path / "made.jsonl.gz", *[page] * 5)
    assert isinstance(told(store, "tier_hit_rate"), Missing)
    assert all(entry.condition for entry in vllm.MAP if entry.name.startswith("vllm:estimated_"))


def test_16_short_times_are_read_from_means_and_quantiles_carry_their_bucket() -> None:
    store, _ = capture("19_api_servers_2_multiprocess_page")
    quantile = told(store, "queue_time_p50_s")
    assert isinstance(quantile, Reading)
    assert quantile.error >= 0.1
    assert value(store, "queue_time_mean_s") < 0.001


def test_17_a_page_is_read_whatever_its_content_type_says() -> None:
    text = "# EOF\nvllm:num_requests_running 1\n"
    assert maps.detect(["vllm:num_requests_running"]) is vllm
    assert PageReader(vllm).read(text, 1.0).samples


def test_18_an_idle_engine_is_told_by_its_requests_and_not_by_its_processor() -> None:
    store, _ = capture("04a_client_bound_think")
    assert value(store, "busy_sample_share") < 0.3
