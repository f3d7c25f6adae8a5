"""What each engine means by its words, on pages as they are sampled and on made ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.errors import SourceError
from kvscope.sources._reader import reader_for
from kvscope.sources.fetch import FetchError
from kvscope.sources.flags import parse_flags
from kvscope.sources.maps import llamacpp, sglang
from kvscope.sources.scrape import ScrapeSource

SCRAPES = Path(__file__).parents[3] / "samples" / "scrapes"


def page(name: str) -> str:
    return (SCRAPES / f"{name}.prom").read_text()


def read(text: str) -> dict[str, float]:
    found = {}
    for sample in reader_for(text, "here").read(text, 1.0).samples:
        labels = ",".join(f"{key}={value}" for key, value in sample.labels)
        found[f"{sample.metric}{{{labels}}}" if labels else sample.metric] = sample.value
    return found


@pytest.mark.parametrize(
    ("name", "engine", "spoken"),
    [
        ("vllm-0.6.6", "vllm", "up to 0.8"),
        ("vllm-0.9.1", "vllm", "0.9-0.11"),
        ("vllm-0.32.0", "vllm", "0.32+"),
        ("vllm-0.33.0", "vllm", "0.33+"),
        ("sglang-old", "sglang", "up to 0.4.5"),
        ("sglang-0.5.9", "sglang", "0.5.9"),
        ("sglang-0.5.23", "sglang", "0.5.23+"),
        ("dynamo-0.9", "dynamo", "up to 0.9"),
        ("dynamo-1.6.1", "dynamo", "1.0+"),
    ],
)
def test_names_tell_engine_and_version(name: str, engine: str, spoken: str) -> None:
    tags = reader_for(page(name), "here").tags
    assert (tags["engine"], tags["version"]) == (engine, spoken)


def test_v0_and_v1_names_mean_the_same_metrics() -> None:
    old, new = read(page("vllm-0.6.6")), read(page("vllm-0.33.0"))
    for metric in ("kv.usage_ratio", "sched.running", "tokens.generated", "latency.ttft.count", "latency.itl.sum"):
        assert metric in old
        assert metric in new
    assert "sched.swapped" in old
    assert "sched.swapped" not in new


def test_tensor_parallel_ranks_that_count_the_same_tokens_count_once_and_shares_of_bytes_add_up() -> None:
    ranks = "".join(
        f'sglang:realtime_tokens_total{{mode="decode",tp_rank="{rank}"}} 100\n'
        f'sglang:load_back_bytes_total{{tp_rank="{rank}"}} 100\nsglang:num_running_reqs{{tp_rank="{rank}"}} 7\n'
        for rank in (0, 1)
    )
    found = read(ranks)
    assert (found["tokens.generated"], found["tier.bytes_in"], found["sched.running"]) == (100, 200, 7)


def test_data_parallel_ranks_add_up() -> None:
    ranks = "".join(f'sglang:num_running_reqs{{dp_rank="{rank}",tp_rank="{rank}"}} 7\n' for rank in (0, 1))
    assert read(ranks)["sched.running"] == 14


def test_sglang_bytes_are_gib_and_milliseconds_are_scaled_in_sums_and_bounds_but_not_in_counts() -> None:
    found = read(
        "sglang:kv_cache_memory_usage_gb 2\nsglang:max_total_num_tokens 1024\nsglang:kv_used_tokens 512\n"
        'sglang:kv_transfer_latency_ms_bucket{le="10.0"} 4\nsglang:kv_transfer_latency_ms_sum 20\n'
        "sglang:kv_transfer_latency_ms_count 4\n"
    )
    assert found["kv.reserved_bytes"] == 2 * 2**30
    assert found["kv.resident_bytes"] == 2**30
    assert found["disagg.transfer_time.bucket{le=0.01}"] == 4
    assert found["disagg.transfer_time.sum"] == pytest.approx(0.02)
    assert found["disagg.transfer_time.count"] == 4


def test_prefix_hits_are_told_by_tier_and_never_taken_for_reads_of_decode() -> None:
    found = read(page("vllm-0.33.0"))
    assert found["prefix.hits_by_tier{tier=host}"] > 0
    assert found["prefix.hits_by_tier{tier=remote}"] > 0
    plain = read('vllm:prompt_tokens_cached_by_source_total{source="device"} 9\nvllm:num_requests_running 1\n')
    assert "tier.hot_accesses" not in plain


def test_an_offload_usage_gauge_is_transfers_in_flight_and_never_the_fill_of_the_tier() -> None:
    found = read("vllm:kv_offload_cpu_cache_usage_perc 0.0\nvllm:num_requests_running 1\n")
    assert found["tier.inflight_ratio"] == 0
    assert not any(metric.startswith("tier.usage_ratio") for metric in found)


def test_a_page_of_two_engines_takes_each_metric_from_the_first_that_says_it() -> None:
    vllm, store = page("vllm-0.32.0"), page("lmcache-0.5.6")
    together = read(vllm + store)
    alone, beside = read(vllm), read(store)
    assert together["prefix.hits"] == alone["prefix.hits"]
    assert together["tokens.prompt"] == alone["tokens.prompt"]
    assert together["tier.bytes_in"] == beside["tier.bytes_in"]
    tags = reader_for(vllm + store, "here").tags
    assert (tags["engine"], tags["beside"]) == ("vllm", "lmcache")


def test_a_router_stands_back_for_the_engine_on_its_page() -> None:
    both = page("dynamo-1.6.1") + page("vllm-0.32.0")
    found = read(both)
    assert reader_for(both, "here").tags["engine"] == "vllm"
    assert found["latency.ttft.count"] == read(page("vllm-0.32.0"))["latency.ttft.count"]
    assert found["kv.capacity_blocks"] == 2048


def test_blocks_become_tokens_where_a_page_counts_blocks() -> None:
    found = read(page("tensorrt_llm-1.3"))
    assert found["kv.capacity_tokens"] == 2048 * 32
    assert found["kv.used_tokens"] == 900 * 32


def test_the_budget_of_tgi_is_not_the_fill_of_its_pool() -> None:
    found = read(page("tgi-db931fc"))
    assert found["kv.budget_tokens"] == 50000
    assert "kv.usage_ratio" not in found


def test_slots_tell_llama_cpps_pool_and_its_fill_only_where_prompts_are_told() -> None:
    slots = [
        {"id": 0, "n_ctx": 4096, "is_processing": True, "n_prompt_tokens": 1000, "next_token": [{"n_decoded": 24}]},
        {"id": 1, "n_ctx": 4096, "is_processing": False},
    ]
    side = llamacpp.read_side(slots)
    assert side == {"kv.capacity_tokens": 8192, "sched.max_running": 2, "kv.used_tokens": 1024}
    text = page("llamacpp-00dc805")
    samples = reader_for(text, "here").read(text, 1.0, side).samples
    assert {sample.metric: sample.value for sample in samples}["kv.usage_ratio"] == 0.125
    del slots[0]["n_prompt_tokens"]
    assert "kv.used_tokens" not in llamacpp.read_side(slots)


@pytest.mark.parametrize("document", [None, {}, [], [1], [{"n_ctx": "x"}], [{}], {"error": {"code": 501}}])
def test_another_document_than_slots_tells_nothing(document: object) -> None:
    assert llamacpp.read_side(document) == {}


def test_a_machines_exporter_alone_is_refused_and_beside_an_engine_read() -> None:
    gpu = page("dcgm-4.8.2")
    with pytest.raises(SourceError, match=r"machine \(dcgm\)"):
        reader_for(gpu, "here")
    samples = reader_for(gpu, "here", alone=False).read(gpu, 1.0).samples
    found = {(sample.metric, dict(sample.labels).get("gpu")): sample.value for sample in samples}
    assert found["gpu.mem_used", "0"] == 61000 * 2**20
    assert found["gpu.power", "1"] == 430


def test_a_core_metric_that_a_page_has_under_no_name_is_said() -> None:
    text = "vllm:num_requests_running 1\nvllm:generation_tokens_total 1\n"
    reader = reader_for(text, "here")
    said = "\n".join(reader.missing(reader.read(text, 1.0).samples))
    assert "vllm:kv_cache_usage_perc, vllm:gpu_cache_usage_perc" in said
    assert "sched.running" not in said


def test_sglang_s_loads_tell_step_time_and_time_of_prefill_over_all_ranks() -> None:
    load = {
        "total_prefill_busy_us": 2_000_000,
        "total_prefill_uncached_tokens": 4096,
        "max_running_requests": 64,
        "decode_moments": [1000.0, 8000.0, 25_000_000.0, 64_000.0, 2e8, 8000.0],
    }
    found = sglang.read_side({"version": "0.5.23", "loads": [load, {**load, "decode_moments": None}]})
    assert found["latency.step.sum"] / found["latency.step.count"] == pytest.approx(0.025)
    assert found["batch.requests_per_step.sum"] / found["batch.requests_per_step.count"] == 8.0
    assert (found["time.prefill"], found["tokens.prefilled"], found["sched.max_running"]) == (4.0, 8192.0, 128.0)
    for odd in ([], {"loads": 3}, {"loads": [7, {"decode_moments": ["x", -1]}]}, {"loads": [{"decode_moments": {}}]}):
        assert sglang.read_side(odd) == {}


def test_a_document_that_no_flag_brings_is_not_asked_for_again() -> None:
    asked = []

    def get(url: str, _: float) -> str:
        asked.append(url)
        if url.endswith("/metrics"):
            return page("sglang-0.5.23")
        raise FetchError(f"{url}: answers HTTP 404")

    source = ScrapeSource("127.0.0.1:1", get=get, pid_of=lambda _: None)
    said = [*source.poll().notices, *source.poll().notices, *source.poll().notices]
    assert sum(url.endswith("/v1/loads") for url in asked) == 1
    assert not any("/v1/loads" in line for line in said)


@pytest.mark.parametrize(
    ("words", "one"),
    [
        (["-np", "6", "-c", "1536", "-kvu"], 1.0),
        (["--ctx-size", "1536"], 1.0),
        (["-np", "6", "-c", "9216"], 0.0),
        (["-c", "1536", "--no-kv-unified"], 0.0),
        (["-np", "6"], None),
    ],
)
def test_llamacpps_command_line_says_whether_its_slots_share_a_pool(words: list[str], one: float | None) -> None:
    told = {"kv.capacity_tokens": 6 * 1536.0, "sched.max_running": 6.0}
    assert llamacpp.derive({}, told, parse_flags(words, llamacpp.FLAGS)).values.get("config.kv_unified") == one
