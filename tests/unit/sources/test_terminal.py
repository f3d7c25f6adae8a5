"""What people paste: tables of devices and benchmarks, answers, logs of old releases or without times."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from kvscope.errors import SourceError
from kvscope.sources import open_target
from kvscope.sources.source import Poll
from probes.sample import Labels

NVIDIA = """
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 550.54      Driver Version: 550.54      CUDA Version: 12.4       |
|=============================================================================|
|   {gpu}  NVIDIA L4                      On  | 00000000:00:1E.0 Off |       0 |
| N/A   {temp}C    P0    27W / 72W |  {used}MiB / 23034MiB |     {util}%      Default |
+-----------------------------------------------------------------------------+
"""
ROCM = """
====================== ROCm System Management Interface ======================
Device  Node  IDs              Temp    Power   Partitions    SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
1       3     0x74a1,   51499  40.5°C  142.0W  NPS1, SPX, 0  1320Mhz  900Mhz   0%   auto  750.0W  12%    37%
"""
NPU = """
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| 3     910B3               | OK            | 96.5        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 21          0    / 0          3370 / 65536         |
+===========================+===============+====================================================+
"""


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], tuple[dict[tuple[str, Labels], float], Poll]]:
    def values(text: str) -> tuple[dict[tuple[str, Labels], float], Poll]:
        path = tmp_path / "pasted"
        path.write_text(text)
        source = open_target(str(path))
        poll = source.poll()
        source.close()
        return {(one.metric, one.labels): one.value for one in poll.samples}, poll

    return values


def gpu(number: str) -> Labels:
    return (("gpu", number),)


def test_tables_of_devices_tell_load_memory_power_and_its_cap(read):
    found, _ = read(NVIDIA.format(gpu=2, temp=61, used=21000, util=97))
    assert found["gpu.util", gpu("2")] == 0.97
    assert found["gpu.mem_used", gpu("2")] == 21000 * 2**20
    assert (found["gpu.power", gpu("2")], found["gpu.power_cap", gpu("2")]) == (27, 72)
    assert found["config.device_memory_bytes", ()] == 23034 * 2**20
    found, _ = read(ROCM)
    assert (found["gpu.util", gpu("1")], found["gpu.clock", gpu("1")], found["gpu.power_cap", gpu("1")]) == (
        0.37,
        1320,
        750,
    )
    found, _ = read(NPU)
    assert (found["gpu.util", gpu("3")], found["gpu.mem_used", gpu("3")]) == (0.21, 3370 * 2**20)
    assert found["gpu.power", gpu("3")] == 96.5


def test_prints_that_follow_one_another_keep_their_order_and_their_times(read):
    prints = [NVIDIA.format(gpu=0, temp=50, used=used, util=90) for used in (1000, 2000, 3000)]
    _, poll = read("".join(prints))
    assert [one.value / 2**20 for one in poll.samples if one.metric == "gpu.mem_used"] == [1000, 2000, 3000]
    assert any("no print says when" in line for line in poll.notices)
    dated = [f"Fri Oct 21 11:0{minute}:15 2022{text}" for minute, text in enumerate(prints)]
    _, poll = read("".join(dated))
    times = [one.t for one in poll.samples if one.metric == "gpu.mem_used"]
    assert [after - before for before, after in pairwise(times)] == [60, 60]
    assert not poll.notices


def test_a_head_without_a_row_that_is_known_is_refused_by_name(read):
    with pytest.raises(SourceError, match="nvidia-smi"):
        read("| NVIDIA-SMI 999 |\n| nothing of a device |\n")


HEAD = (
    "| model | size | params | backend | ngl | {} | test | t/s |\n| --- | ---: | ---: | --- | --: | --- | --- | --: |\n"
)


def test_rows_of_llama_bench_that_differ_in_the_kv_s_type_are_two_runs(read):
    row = "| llama 8B Q4_K | 4.58 GiB | 8.03 B | CUDA | 99 | {} | {} | {} |\n"
    table = HEAD.format("type_k | type_v").replace("| --- | ---: | ---: |", "| --- | --- | ---: | ---: |")
    table += row.format("f16 | f16", "pp 512", "700.0 ± 4.0") + row.format("f16 | f16", "tg 128", "40.0 ± 0.2")
    table += row.format("q8_0 | q8_0", "pp 512", "650.0 ± 4.0") + row.format("q8_0 | q8_0", "tg 128", "30.0 ± 0.1")
    _, poll = read(table)
    assert [mark.name for mark in poll.marks] == ["before", "after"]
    bits = dict.fromkeys(one.value for one in poll.samples if one.metric == "config.kv_bits")
    tpot = dict.fromkeys(round(one.value, 3) for one in poll.samples if one.metric == "latency.tpot")
    assert list(bits) == [16.0, 8.5]
    assert list(tpot) == [0.025, 0.033]
    assert any("type_k q8_0" in line for line in poll.notices)


def test_a_comparison_of_two_builds_has_one_run_a_column(read):
    table = "| GPU | Model | Test | t/s master | t/s pr | Speedup |\n|:--|:--|:--|--:|--:|--:|\n"
    _, poll = read(table + "| P40 | llama 7B | tg128 | 50.0 | 40.0 | 0.80 |\n")
    tpot = dict.fromkeys(round(one.value, 4) for one in poll.samples if one.metric == "latency.tpot")
    assert list(tpot) == [0.02, 0.025]
    assert any("t/s master" in line and "t/s pr" in line for line in poll.notices)


def test_llama_batched_bench_tells_of_its_largest_batch(read):
    head = "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n"
    rows = "|   512 |     32 |    1 |    544 |    0.3 |  1500.0 |    0.4 |    80.0 |    0.7 |   730.0 |\n"
    found, _ = read(
        head + "|--|--|--|--|--|--|--|--|--|--|\n" + rows + rows.replace("|    1 |", "|    8 |").replace("0.4", "0.8")
    )
    assert found["sched.running", ()] == 8
    assert found["latency.tpot", ()] == pytest.approx(0.025, rel=1e-4)


def test_two_results_in_one_text_are_before_and_after_by_their_titles(read):
    result = (
        "{}\n============ Serving Benchmark Result ============\nSuccessful requests: 100\n"
        "Benchmark duration (s): 50.0\nTotal generated tokens: 20000\nOutput token throughput (tok/s): 400.0\n"
        "Mean TPOT (ms): {}\nMedian TPOT (ms): {}\n"
    )
    _, poll = read(result.format("Baseline", 20.0, 19.0) + result.format("with the patch", 25.0, 24.0))
    tpot = dict.fromkeys(round(one.value, 3) for one in poll.samples if one.metric == "latency.tpot")
    assert list(tpot) == [0.02, 0.025]
    assert "before: 'Baseline', after: 'with the patch'" in poll.notices


def test_answers_tell_tokens_cached_ones_and_latencies(read):
    meta = {
        "prompt_tokens": 1000,
        "completion_tokens": 101,
        "cached_tokens": 1600,
        "e2e_latency": 6.0,
        "ttft_latency": 1.0,
    }
    found, _ = read(json.dumps({"text": "", "meta_info": meta}))
    assert (found["latency.ttft", ()], found["latency.e2e", ()]) == (1.0, 6.0)
    # A request that was put back counts its cached tokens twice.
    assert (found["prefix.queries", ()], found["prefix.hits", ()]) == (1000, 1000)
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 32}}
    found, poll = read(json.dumps([{"created": 1_790_000_000 + n, "usage": usage} for n in range(4)], indent=1))
    assert (found["tokens.prompt", ()], found["prefix.hits", ()], found["tokens.prefilled", ()]) == (200, 128, 72)
    assert not any("no answer says" in line for line in poll.notices)
    printed = "prompt eval count:    26 token(s)\nprompt eval duration: 342.5ms\neval count:           300 token(s)\n"
    found, _ = read((printed + "eval duration:        1m0s\neval rate:            5 tokens/s\n\n") * 2)
    assert (found["requests.finished", ()], found["latency.tpot", ()]) == (2, 0.2)


@pytest.mark.parametrize(("processor", "on_host"), [("100% GPU", 0.0), ("45%/55% CPU/GPU", 0.45), ("100% CPU", 1.0)])
def test_ollama_s_table_tells_what_lies_in_host_memory(read, processor, on_host):
    row = f"m:latest   0123456789ab    10 GB    {processor}    8192     4 minutes from now\n"
    found, _ = read(f"NAME   ID   SIZE   PROCESSOR   CONTEXT   UNTIL\n{row}")
    assert found["config.share_on_host", ()] == pytest.approx(on_host)
    assert found["gpu.mem_used", gpu("0")] == pytest.approx((1 - on_host) * 10e9)
    assert found["config.max_context", ()] == 8192


def test_a_line_without_any_time_tells_states_and_durations_but_no_rate_of_its_own(read):
    line = "Decode batch. #running-req: 1010, #token: 55006, token usage: 0.93, gen throughput (token/s): 9.0, "
    line += "#queue-req: 12"
    found, poll = read(f"{line}\n" * 3)
    assert (found["sched.running", ()], found["sched.waiting", ()], found["kv.usage_ratio", ()]) == (1010, 12, 0.93)
    assert any("no line carries a time" in said for said in poll.notices)
    timing = "slot print_timing: id  0 | task 0 |\nprompt eval time = 915.1 ms / 51 tokens\n"
    found, _ = read(timing + "       eval time = 20000.0 ms / 250 tokens\n      total time = 20915.1 ms / 301 tokens\n")
    assert found["latency.prefill_time", ()] == pytest.approx(0.9151)
    assert not any(name in ("tokens.generated", "time.decode_requests") for name, _ in found)


def test_a_time_of_day_alone_is_the_last_one_before_the_log_was_written(read, tmp_path):
    line = "[{} TP0] Decode batch. #running-req: 2, #token: 50, token usage: 0.25, #queue-req: 0\n"
    _, poll = read(line.format("04:00:00") + line.format("04:00:10"))
    times = [one.t for one in poll.samples if one.metric == "sched.running"]
    written = (tmp_path / "pasted").stat().st_mtime
    assert times[1] - times[0] == 10
    assert -3600 <= written - times[1] < 86_400


@pytest.mark.parametrize("month", ["Okt", "Oct", "10月", "ott", "out"])
def test_the_journal_s_months_are_read_in_other_languages(read, month):
    words = "ollama[83240]: llama_context: n_batch = 512"
    _, poll = read(
        f"{month} 12 10:43:12 host {words}\n{month} 12 10:43:14 host ollama[83240]: llama_context: flash_attn=0\n"
    )
    assert not any("no line carries a time" in line for line in poll.notices)


def test_a_start_that_was_given_up_is_an_event(read):
    found, poll = read(
        "INFO 01-30 03:19:14 kv_cache_utils.py:395] # GPU blocks: 1381\n"
        "ValueError: No available memory for the cache blocks.\n"
    )
    assert found["events.start_failed", ()] == 1
    assert any("did not start" in line for line in poll.notices)


def test_saved_iterations_of_tensorrt_llm_follow_one_another(read):
    batch = {"numScheduledRequests": 8, "numGenRequests": 8, "numCtxTokens": 0}
    entries = [{"iter": n, "iterLatencyMS": 20.0, "inflightBatchingStats": batch} for n in range(50)]
    for text in (json.dumps(entries), "\n".join(json.dumps(one) for one in entries)):
        found, poll = read(text)
        assert (found["batch.steps", ()], found["tokens.generated", ()]) == (50, 400)
        times = sorted({one.t for one in poll.samples})
        assert times[-1] - times[0] == pytest.approx(0.98, abs=0.01)
