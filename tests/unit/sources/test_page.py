"""A vLLM page becomes canonical samples, and what it does not say stays unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.errors import SourceError
from kvscope.sources._page import PageReader, PageResult
from kvscope.sources._reader import reader_for
from kvscope.sources.maps import vllm
from probes.catalog import CATALOG
from probes.openmetrics import prometheus_name

PAGE = (Path(__file__).parents[3] / "samples/scrapes/vllm-0.32.0.prom").read_text()
CONFIG = {
    "block_size": "16",
    "kv_cache_size_tokens": "1600",
    "num_gpu_blocks": "100",
    "num_gpu_blocks_override": "None",
}


def info(**labels: str) -> str:
    pairs = ",".join(f'{name}="{value}"' for name, value in (CONFIG | labels).items())
    return f"vllm:cache_config_info{{{pairs}}} 1.0\n"


def read(text: str, t: float = 100.0) -> dict[str, float]:
    return values(PageReader(vllm).read(text, t))


def values(result: PageResult) -> dict[str, float]:
    found = {}
    for sample in result.samples:
        labels = ",".join(value for _, value in sample.labels) if sample.metric.endswith(".bucket") else ""
        found[sample.metric + (f"[{labels}]" if labels else "")] = sample.value
    return found


def test_a_real_page_gives_the_numbers_on_it() -> None:
    found = read(PAGE)
    assert found["sched.running"] == 8
    assert found["kv.block_size"] == 128
    assert found["kv.capacity_tokens"] == 349440
    assert found["kv.reserved_bytes"] == 2**30
    assert found["latency.ttft.count"] > 0
    assert found["batch.steps"] == found["batch.tokens_per_step.count"]


def test_usage_is_a_share_of_all_blocks_but_the_null_block() -> None:
    found = read("vllm:kv_cache_usage_perc 0.5\n" + info(kv_cache_memory_bytes="160000"))
    assert found["kv.used_tokens"] == 0.5 * (1600 - 16)
    assert found["kv.bytes_per_token_assumed"] == 100
    assert found["kv.resident_bytes"] == found["kv.used_tokens"] * 100


def test_under_an_override_the_bytes_are_unknown_and_said_to_be() -> None:
    result = PageReader(vllm).read(
        "vllm:kv_cache_usage_perc 0.5\n" + info(kv_cache_memory_bytes="160000", num_gpu_blocks_override="100"), 1.0
    )
    assert not {"kv.reserved_bytes", "kv.resident_bytes", "kv.bytes_per_token_assumed"} & values(result).keys()
    assert values(result)["kv.capacity_tokens"] == 1600
    assert "num-gpu-blocks-override" in result.notices[0]


def test_an_older_page_without_the_token_count_multiplies_blocks() -> None:
    found = read("vllm:num_requests_running 1\n" + info(kv_cache_size_tokens="None"))
    assert found["kv.capacity_tokens"] == 1600
    assert "kv.used_tokens" not in found
    assert "kv.reserved_bytes" not in found


def test_engine_cores_add_up_and_shares_are_averaged() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{core}"}} {core + 1}\n'
        f'vllm:kv_cache_usage_perc{{engine="{core}"}} 0.{core}\n'
        f'vllm:time_to_first_token_seconds_bucket{{engine="{core}",le="1.0"}} 3\n'
        + info(engine=str(core), num_gpu_blocks="200")
        for core in (0, 1)
    )
    found = read(page)
    assert found["sched.running"] == 3
    assert found["kv.usage_ratio"] == 0.05
    assert found["kv.capacity_tokens"] == 3200
    assert found["latency.ttft.bucket[1.0]"] == 6


def test_label_sets_that_ended_are_forgotten_and_what_goes_on_counts_once() -> None:
    reader = PageReader(vllm)
    most = 0
    for number in range(60):
        old = "".join(f'vllm:request_success_total{{finished_reason="r{number}-{at}"}} 1\n' for at in range(100))
        usage = ("" if number % 2 else 'vllm:kv_cache_usage_perc{engine="0"} 0.2\n') + (
            'vllm:kv_cache_usage_perc{engine="1"} 0.6\n'
        )
        found = values(reader.read(old + usage, float(number)))
        assert found["kv.usage_ratio"] == pytest.approx(0.6 if number % 2 else 0.4)
        most = max(most, reader._parser.remembered)
    assert most <= 1024 + 102


def test_bounds_have_one_spelling() -> None:
    page = 'vllm:time_to_first_token_seconds_bucket{le="1"} 3\nvllm:time_to_first_token_seconds_bucket{le="+Inf"} 4\n'
    assert {"latency.ttft.bucket[1.0]", "latency.ttft.bucket[+Inf]"} <= read(page).keys()


def test_an_old_name_is_read_alone_and_never_added_to_its_successor() -> None:
    old = 'vllm:gpu_cache_usage_perc{engine="0"} 0.4\n'
    assert read(old)["kv.usage_ratio"] == 0.4
    assert read(old + 'vllm:kv_cache_usage_perc{engine="0"} 0.3\n')["kv.usage_ratio"] == 0.3


def test_flows_of_one_kind_add_up_but_an_alias_of_one_does_not() -> None:
    page = (
        'vllm:kv_offload_load_bytes_total 100\nvllm:kv_offload_total_bytes_total{transfer_type="CPU_to_GPU"} 100\n'
        "vllm:hisparse_host_to_device_bytes_total 7\n"
    )
    assert read(page)["tier.bytes_in"] == 107


def test_only_the_series_with_the_wanted_label_count() -> None:
    page = (
        'vllm:prompt_tokens_by_source_total{source="local_compute"} 5\n'
        'vllm:prompt_tokens_by_source_total{source="local_cache_hit"} 50\n'
        'vllm:request_success_total{finished_reason="stop"} 3\nvllm:request_success_total{finished_reason="error"} 1\n'
    )
    found = read(page)
    assert (found["tokens.prefilled"], found["requests.finished"], found["requests.errors"]) == (5, 4, 1)


def test_the_model_and_the_settings_become_tags() -> None:
    reader = PageReader(vllm)
    reader.read('vllm:num_requests_running{model_name="m"} 1\n' + info(enable_prefix_caching="True"), 1.0)
    assert reader.tags == {"engine": "vllm", "model": "m", "prefix_caching": "on"}


@pytest.mark.parametrize(("value", "said"), [("NaN", "nan"), ("-3", "-3"), ("+Inf", "inf")])
def test_an_impossible_counter_is_left_out_and_said_once(value: str, said: str) -> None:
    reader = PageReader(vllm)
    page = f"vllm:generation_tokens_total {value}\nvllm:num_requests_running 1\n"
    first, second = reader.read(page, 1.0), reader.read(page, 2.0)
    assert "tokens.generated" not in values(first)
    assert first.notices == [f"vllm:generation_tokens_total is {said}: left out"]
    assert second.notices == []


def test_a_limit_on_the_command_line_counts_for_every_core() -> None:
    reader = PageReader(vllm)
    reader.flags = {"max-num-seqs": "4"}
    found = values(reader.read(info(engine="0") + info(engine="1"), 1.0))
    assert found["sched.max_running"] == 8
    assert reader.tags["cap"] == "8"
    assert "sched.max_running" not in read(info())


def test_a_counter_that_goes_back_is_a_restart() -> None:
    reader = PageReader(vllm)
    assert not reader.read("vllm:generation_tokens_total 100\nvllm:num_requests_running 9\n", 1.0).restarted
    assert not reader.read("vllm:generation_tokens_total 100\nvllm:num_requests_running 1\n", 2.0).restarted
    result = reader.read("vllm:generation_tokens_total 5\n", 3.0)
    assert result.restarted
    assert "tokens.generated" in result.notices[0]
    assert not reader.read("vllm:generation_tokens_total 6\n", 4.0).restarted


def test_another_start_time_is_a_restart_even_when_no_counter_went_back() -> None:
    reader = PageReader(vllm)
    reader.read("process_start_time_seconds 50\nvllm:generation_tokens_total 1\n", 1.0)
    result = reader.read("process_start_time_seconds 60\nvllm:generation_tokens_total 1\n", 2.0)
    assert result.restarted


def test_our_own_page_is_read_by_names_made_from_the_catalogue() -> None:
    name = prometheus_name(CATALOG["kv.bytes_per_layer"])
    page = f'{name}{{layer="3"}} 9\n{prometheus_name(CATALOG["tokens.generated"])} 4\n'
    page += f'{prometheus_name(CATALOG["engine.info"])}{{engine="e",model="m"}} 1\n'
    reader = reader_for(page, "here")
    samples = {(s.metric, s.labels): s.value for s in reader.read(page, 1.0).samples}
    assert samples["kv.bytes_per_layer", (("layer", "3"),)] == 9
    assert samples["tokens.generated", ()] == 4
    assert reader.tags["model"] == "m"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("<!doctype html><title>hi</title>", "HTML"),
        ('node_cpu_seconds_total{cpu="0"} 1\nnode_load1 0.5\n', r"node_cpu_seconds_total, node_load1.*vllm:"),
        ("\x7fELF\x00\x01 garbage \x00", "nothing in the answer is a metric"),
    ],
)
def test_a_page_of_nobody_known_says_what_was_there_and_what_was_expected(page: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        reader_for(page, "http://here/metrics")
