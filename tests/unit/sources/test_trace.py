"""Profiler traces: every instant is counted once, and what no rule knows is shown."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvscope import signals
from kvscope.errors import SourceError
from kvscope.signals.accounting import PARTS
from kvscope.signals.reading import Reading
from kvscope.sources import open_target
from kvscope.sources.trace import TraceSource, events
from kvscope.store import Store

REAL = sorted((Path(__file__).parents[3] / "samples/traces").glob("*.json.gz"))
Event = dict[str, Any]
Write = Callable[[list[Event]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def trace(events: list[Event]) -> Path:
        path = tmp_path / "trace.json"
        head = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": 1_700_000_000_000_000_000}
        path.write_text(json.dumps({**head, "traceEvents": events}))
        return path

    return trace


def op(name: str, ts: float, dur: float, dims: list[Any] | None = None, cat: str = "cpu_op") -> Event:
    args = {"Input Dims": dims} if dims else {}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def note(name: str, ts: float, dur: float) -> Event:
    return op(name, ts, dur, cat="user_annotation")


def kernel(name: str, ts: float, dur: float, stream: int = 7, link: int = 0, size: int | None = None) -> Event:
    copied = {} if size is None else {"bytes": size}
    args = {"device": 0, "stream": stream, **({"correlation": link} if link else {}), **copied}
    cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def launch(ts: float, link: int) -> Event:
    args = {"correlation": link}
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": ts, "dur": 1} | {
        "args": args
    }


def seconds(path: Path) -> dict[str, float]:
    """Return the last value of every counter."""
    return {sample.metric: sample.value for sample in TraceSource(path).poll().samples}


def milliseconds(path: Path, *metrics: str) -> list[float]:
    found = seconds(path)
    return [round(found[metric] * 1000, 6) for metric in metrics]


def notices(path: Path) -> str:
    return "\n".join(TraceSource(path).poll().notices)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_the_shares_of_a_real_trace_sum_to_one_with_at_most_a_tenth_unaccounted(path: Path) -> None:
    with closing(open_target(str(path))) as source:
        poll = source.poll()
    store = Store()
    store.add(poll.samples)
    shares = {name: signals.compute(name, store, store.segments[-1]) for name in (*PARTS, "unaccounted_share")}
    values = {name: share.value for name, share in shares.items() if isinstance(share, Reading)}
    assert len(values) == len(shares), shares
    assert sum(values.values()) == pytest.approx(1.0)
    assert -0.001 < values["unaccounted_share"] <= 0.10
    assert poll.ended


def test_steps_are_told_apart_by_the_number_of_token_ids(write: Write) -> None:
    path = write(
        [
            op("aten::embedding", 0, 10, [[100, 8], [2, 50]]),
            op("aten::linear", 10, 990),
            op("aten::embedding", 1000, 10, [[100, 8], [2, 1]]),
            op("aten::linear", 1010, 90),
            op("aten::embedding", 1100, 10, [[100, 8], [2, 1]]),
            op("aten::linear", 1110, 90),
        ]
    )
    assert milliseconds(path, "time.prefill", "time.decode", "time.linear") == [1.0, 0.2, 0.2]
    found = seconds(path)
    assert (found["tokens.prefilled"], found["tokens.generated"], found["batch.decode_steps"]) == (100, 4, 2)
    assert "1 prefill and 2 decode steps" in notices(path)


def test_steps_are_told_apart_by_an_engines_annotations(write: Write) -> None:
    path = write(
        [
            note("execute_context_1(128)_generation_0(0)", 0, 100),
            op("aten::linear", 0, 100),
            note("execute_context_1(2)_generation_5(5)", 100, 50),
            op("aten::linear", 100, 50),
            note("execute_9_context_0(sq0sk0sqsq0sqsk0)_generation_9(sq9sk900sqsq9sqsk900)", 150, 50),
            op("aten::linear", 150, 50),
        ]
    )
    found = seconds(path)
    assert milliseconds(path, "time.prefill", "time.decode") == [0.1, 0.1]
    assert (found["tokens.generated"], found["tokens.prefilled"], found["batch.context_tokens"]) == (14, 130, 100)
    assert TraceSource(path).describe().engine == "vllm"
    assert "1 did both" in notices(path)


def test_a_trace_without_steps_says_that_prefill_and_decode_are_not_told_apart(write: Write) -> None:
    path = write([op("aten::linear", 0, 100), op("aten::linear", 200, 100)])
    assert "time.prefill" not in seconds(path)
    assert milliseconds(path, "time.decode", "time.linear", "time.host") == [0.3, 0.2, 0.1]
    assert "not told apart" in notices(path)


def test_token_ids_in_one_row_are_not_taken_for_a_prompt(write: Write) -> None:
    events = [op("aten::embedding", t, 10, [[100, 8], [32]]) for t in (0, 100, 200, 300)]
    assert "time.prefill" not in seconds(write(events))
    assert "not told apart" in notices(write(events))


def test_kernels_that_overlap_are_not_counted_twice(write: Write) -> None:
    path = write([kernel("flash_fwd_kernel", 0, 100), kernel("nvjet_hsh", 50, 100, stream=8)])
    assert milliseconds(path, "time.attend", "time.linear", "time.step") == [0.1, 0.05, 0.15]


def test_a_copy_counts_only_while_nothing_computes(write: Write) -> None:
    copy = kernel("Memcpy HtoD (Pinned -> Device)", 50, 150, stream=9, size=1 << 20)
    path = write([copy, kernel("flash_fwd_kernel", 0, 100), kernel("nvjet_hsh", 180, 20)])
    assert milliseconds(path, "tier.transfer_time", "time.attend", "time.linear") == [0.08, 0.1, 0.02]
    assert seconds(path)["tier.bytes_in"] == 1 << 20


def test_a_copy_of_a_few_bytes_is_the_hosts_work_not_the_tiers(write: Write) -> None:
    path = write([kernel("Memcpy DtoH (Device -> Pageable)", 0, 10, size=8), kernel("nvjet_hsh", 10, 10)])
    assert milliseconds(path, "tier.transfer_time", "time.host") == [0.0, 0.01]
    assert seconds(path)["tier.bytes_out"] == 0


def test_a_launch_gap_is_the_hosts_and_a_long_silence_is_idle(write: Write) -> None:
    path = write([kernel("nvjet", 0, 10), kernel("nvjet", 30, 10), kernel("nvjet", 500_040, 10)])
    assert milliseconds(path, "time.host", "time.idle", "time.step") == [0.02, 500.0, 0.05]


def test_a_kernel_is_what_the_operator_that_launched_it_is(write: Write) -> None:
    path = write(
        [
            op("aten::linear", 0, 10),
            launch(2, 1),
            op("aten::matmul", 20, 10),
            op("aten::bmm", 21, 8),
            launch(22, 2),
            kernel("ampere_bf16_s16816gemm", 5, 100, link=1),
            kernel("ampere_bf16_s16816gemm", 105, 100, link=2),
        ]
    )
    assert milliseconds(path, "time.linear", "time.attend") == [0.1, 0.1]


def test_eager_attention_is_all_between_the_two_products_around_a_softmax(write: Write) -> None:
    names = ["aten::mul", "aten::bmm", "aten::mul", "aten::add", "aten::softmax", "aten::bmm", "aten::add"]
    events = [op(name, 10.0 * i, 10) for i, name in enumerate(names)]
    assert milliseconds(write(events), "time.attend", "time.linear") == [0.05, 0.02]


def test_keys_appended_and_repeated_are_gathering(write: Write) -> None:
    append = op("aten::cat", 0, 10, [[[1, 2, 9, 64], [1, 2, 1, 64]], []])
    append["args"]["Concrete Inputs"] = ["", "-2"]
    rotate = op("aten::cat", 10, 10, [[[1, 2, 1, 32], [1, 2, 1, 32]], []])
    rotate["args"]["Concrete Inputs"] = ["", "3"]
    repeat = op("aten::clone", 20, 10, [[1, 2, 4, 9, 64]])
    assert milliseconds(write([append, rotate, repeat]), "time.gather", "time.linear") == [0.02, 0.01]


def test_what_follows_the_last_product_of_a_step_is_sampling(write: Write) -> None:
    events = []
    for t in (0, 100, 200):
        events += [op("aten::embedding", t, 10, [[9, 8], [1, 1]]), op("aten::linear", t + 10, 40)]
        events += [op("aten::topk", t + 50, 20), op("aten::softmax", t + 70, 10), op("aten::multinomial", t + 80, 20)]
    assert milliseconds(write(events), "time.sample", "sparse.index_time", "time.linear") == [0.15, 0.0, 0.15]


def test_a_top_k_before_attention_is_the_index(write: Write) -> None:
    events = []
    for t in (0, 100, 200):
        events += [op("aten::embedding", t, 10, [[9, 8], [1, 1]]), op("aten::topk", t + 10, 20)]
        events += [op("aten::scaled_dot_product_attention", t + 30, 40), op("aten::linear", t + 70, 30)]
    assert milliseconds(write(events), "sparse.index_time", "time.attend") == [0.06, 0.12]


def test_a_name_no_rule_knows_stays_unaccounted_and_is_named(write: Write) -> None:
    path = write([kernel("zorp_v3", 0, 30), kernel("nvjet", 30, 70)])
    store = Store()
    store.add(TraceSource(path).poll().samples)
    share = signals.compute("unaccounted_share", store, store.segments[-1])
    assert isinstance(share, Reading)
    assert share.value == pytest.approx(0.3)
    assert "unknown 30.0%: no rule knows zorp_v3 (30.0%)" in notices(path)


def test_modules_say_what_weak_names_inside_them_are(write: Write) -> None:
    module = op("nn.Module: LlamaRMSNorm_3", 0, 30, cat="python_function")
    assert "norm 100.0%" in notices(write([module, op("aten::pow", 0, 10), op("aten::mul", 10, 20)]))


def test_a_second_thread_counts_only_while_the_first_does_nothing(write: Write) -> None:
    other = op("aten::copy_", 50, 100) | {"tid": 2}
    path = write([op("aten::linear", 0, 100), other, op("aten::linear", 200, 100)])
    assert milliseconds(path, "time.linear", "time.host", "time.step") == [0.25, 0.05, 0.3]


def test_the_busiest_of_several_devices_is_read(write: Write) -> None:
    second = kernel("nvjet", 0, 500)
    second["args"]["device"] = 1
    path = write([kernel("flash_fwd", 0, 100), second])
    assert milliseconds(path, "time.linear", "time.attend") == [0.5, 0.0]
    assert "work on 2 devices" in notices(path)


def test_a_list_of_events_without_a_head_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([op("aten::linear", 0, 100)]))
    with closing(open_target(str(path))) as source:
        assert source.poll().samples


def test_what_is_whole_of_a_cut_trace_is_read(write: Write, tmp_path: Path) -> None:
    whole = write([op("aten::linear", 10.0 * i, 10) for i in range(2000)]).read_bytes()
    cut = tmp_path / "cut.json"
    cut.write_bytes(whole[: len(whole) // 2])
    assert "cut or broken after event" in notices(cut)
    packed = gzip.compress(whole)
    cut.write_bytes(packed[: len(packed) - 200])
    assert "cut or damaged" in notices(cut)


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": []}',
        '{"traceEvents": [}',
        '{"schemaVersion": 1, "deviceProperties": []',
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": 3, "ts": 1, "dur": 1}]}',
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": NaN, "dur": 1}]}',
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 0}]}',
        '{"traceEvents": [' + "[" * 100_000,
    ],
)
def test_a_trace_with_nothing_to_time_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(SourceError) as error:
        open_target(str(path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_real_trace_is_read_or_refused_never_a_traceback(tmp_path: Path) -> None:
    whole, dice = gzip.decompress(REAL[0].read_bytes())[:60_000], random.Random(7)
    path = tmp_path / "fuzzed.json"
    said = []
    for _ in range(60):
        text = bytearray(whole)
        for _ in range(dice.choice((1, 5, 50))):
            text[dice.randrange(len(text))] = dice.choice(b'0123456789-.eE"[]{},:\\nXN\x00\xff')
        path.write_bytes(text[: dice.randrange(len(text))])
        try:
            TraceSource(path).poll()
        except SourceError as error:
            said.append(str(error))
    assert not any("\n" in line for line in said)


def test_the_text_of_a_trace_is_never_held_whole(write: Write) -> None:
    path = write([op("aten::linear", i, 1) | {"args": {"Call stack": "x" * 20_000}} for i in range(1000)])
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        events.read(path)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("held", "bits"), [("unsigned char", 8.0), ("__nv_bfloat16", 16.0), ("other_t", None)])
def test_kernels_that_write_kv_count_the_layers_and_tell_the_bits(
    tmp_path: Path, held: str, bits: float | None
) -> None:
    found: list[dict[str, Any]] = []
    for step in range(4):
        at = 1000.0 * step
        found.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": "execute_context_0(0)_generation_2(2)",
                "ts": at,
                "dur": 900,
                "pid": 1,
                "tid": 1,
            }
        )
        for layer in range(3):
            for name, begins, taken in (
                (f"void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, {held}, (x)1>", 10, 4),
                ("flash_fwd_splitkv_kernel", 20, 60),
            ):
                link = 100 * step + 10 * layer + begins
                start = at + 300 * layer + begins
                found.append(
                    {
                        "ph": "X",
                        "cat": "cuda_runtime",
                        "name": "cudaLaunchKernel",
                        "ts": at + layer + begins / 100,
                        "dur": 0.1,
                        "pid": 1,
                        "tid": 1,
                        "args": {"correlation": link},
                    }
                )
                found.append(
                    {
                        "ph": "X",
                        "cat": "kernel",
                        "name": name,
                        "ts": start,
                        "dur": taken,
                        "pid": 0,
                        "tid": 7,
                        "args": {"correlation": link, "device": 0},
                    }
                )
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": found}))
    samples = open_target(str(path)).poll().samples
    writes = [one.value for one in samples if one.metric == "kernel.kv_write"]
    assert writes
    assert all(value == pytest.approx(4e-6) for value in writes)
    attention = [one.value for one in samples if one.metric == "kernel.decode_attention"]
    assert all(value == pytest.approx(60e-6) for value in attention)
    assert [one.value for one in samples if one.metric == "config.kv_bits"] == ([bits] if bits else [])
