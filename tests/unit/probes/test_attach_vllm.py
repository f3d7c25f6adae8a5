"""vLLM's statistics become rows; whatever a version says otherwise never reaches the engine as an error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace as Bag
from typing import Any

import pytest

from probes import attach_vllm
from probes.attach_vllm import REQUEST_COLUMNS, Limits, Watch, binding
from probes.vllm_geometry import groups

LAYERS, BLOCKS, BLOCK_TOKENS = 6, 100, 16
TOKEN_BYTES = LAYERS * 2 * 2 * 64 * 2
LIMITS = Limits(requests=4, tokens=256)


class Rows:
    """A sink that keeps rows by name."""

    def __init__(self, header: dict[str, Any], names: list[str]) -> None:
        self.header, self.names = header, names
        self.steps: list[dict[str, float]] = []
        self.requests: list[dict[str, float]] = []

    def write_step(self, values: Any) -> None:
        self.steps.append(dict(zip(self.names, values, strict=True)))

    def write_request(self, values: Any) -> None:
        self.requests.append(dict(zip(REQUEST_COLUMNS, values, strict=True)))

    def write_event(self, event: Any) -> None:
        raise AssertionError(event)


def config(details: bool = False, layer_types: list[str] | None = None, blocks_watched: float = 0.0) -> Bag:
    return Bag(
        scheduler_config=Bag(max_num_seqs=4, max_num_batched_tokens=256),
        observability_config=Bag(
            enable_logging_iteration_details=details,
            kv_cache_metrics=blocks_watched > 0,
            kv_cache_metrics_sample=blocks_watched or 0.01,
        ),
        cache_config=Bag(num_gpu_blocks=BLOCKS, block_size=BLOCK_TOKENS, cache_dtype="auto"),
        parallel_config=Bag(tensor_parallel_size=1, pipeline_parallel_size=1),
        device_config=Bag(device_type="cpu"),
        model_config=Bag(
            model="./tiny",
            dtype=Bag(itemsize=2),
            hf_text_config=Bag(layer_types=layer_types),
            get_num_layers=lambda parallel: LAYERS,
            get_num_kv_heads=lambda parallel: 2,
            get_head_size=lambda: 64,
        ),
    )


def state(running: int = 1, waiting: int = 0, usage: float = 0.1, **more: Any) -> Bag:
    prefix = Bag(queries=10, hits=4)
    return Bag(
        num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage, prefix_cache_stats=prefix, **more
    )


def step(prefill: int = 0, decode: int = 1, requests: int = 0) -> Bag:
    return Bag(num_ctx_tokens=prefill, num_generation_tokens=decode, num_ctx_requests=requests, elapsed_ms=20.0)


def iteration(finished: tuple[Any, ...] = (), preempted: int = 0) -> Bag:
    return Bag(
        num_generation_tokens=3,
        num_prompt_tokens=50,
        prompt_token_stats=Bag(computed=40),
        num_preempted_reqs=preempted,
        finished_requests=list(finished),
    )


def finished() -> Bag:
    return Bag(
        e2e_latency=2.0,
        queued_time=0.2,
        prefill_time=0.3,
        decode_time=1.4,
        mean_time_per_output_token=0.1,
        num_prompt_tokens=50,
        num_generation_tokens=15,
        num_preemptions=1,
        num_cached_tokens=10,
    )


@pytest.fixture
def watched() -> Iterator[Any]:
    opened: list[Watch] = []

    def start(given: Any = None, engines: tuple[int, ...] = (0,)) -> tuple[Watch, Rows]:
        made: list[Rows] = []

        def make(header: dict[str, Any], names: list[str]) -> Rows:
            made.append(Rows(header, names))
            return made[0]

        opened.append(Watch(given or config(), engines, make))
        return opened[-1], made[0] if made else Rows({}, [])

    yield start
    for one in opened:
        one.close()


def test_every_step_is_a_row_of_growing_counters(watched: Any) -> None:
    watch, rows = watched()
    watch.record(state(running=2, waiting=1), iteration(), 0)
    watch.record(state(running=3), iteration((finished(),)), 0)
    last = rows.steps[-1]
    assert len(rows.steps) == 2
    assert (last["batch.steps"], last["tokens.generated"], last["tokens.prompt"], last["tokens.prefilled"]) == (
        2,
        6,
        100,
        80,
    )
    assert (last["prefix.queries"], last["prefix.hits"], last["requests.finished"]) == (20, 8, 1)
    assert (last["sched.running"], last["sched.waiting"], last["sched.max_running"]) == (3, 0, 4)
    assert "time.step" not in last


def test_kv_is_told_in_bytes_of_every_layer(watched: Any) -> None:
    watch, rows = watched()
    watch.record(state(usage=0.5), iteration(), 0)
    last = rows.steps[-1]
    assert last["kv.bytes_per_token_assumed"] == TOKEN_BYTES
    assert last["kv.reserved_bytes"] == BLOCKS * BLOCK_TOKENS * TOKEN_BYTES
    assert last["kv.resident_bytes"] == last["kv.reserved_bytes"] / 2
    assert last["kv.bytes_per_layer[5]"] == last["kv.resident_bytes"] / LAYERS
    assert (last["kv.used_blocks"], last["kv.capacity_tokens"]) == (50, BLOCKS * BLOCK_TOKENS)


def test_layers_of_several_kinds_have_no_bytes_by_guess(watched: Any) -> None:
    given = config(layer_types=["full_attention", "sliding_attention", "sliding_attention"] * 2)
    watch, rows = watched(given)
    watch.record(state(usage=0.5), iteration(), 0)
    assert groups(given) == {"full_attention": 2, "sliding_attention": 4}
    assert rows.header["kv_groups"] == {"full_attention": 2, "sliding_attention": 4}
    assert rows.steps[-1]["kv.resident_bytes"] != rows.steps[-1]["kv.resident_bytes"]
    assert rows.steps[-1]["kv.used_blocks"] == 50


def test_a_finished_request_is_a_row(watched: Any) -> None:
    watch, rows = watched()
    watch.record(state(), iteration((finished(),)), 0)
    row = rows.requests[0]
    assert row["latency.ttft"] == pytest.approx(0.6)
    assert (row["latency.tpot"], row["sched.queue_time"], row["request.preemptions"]) == (0.1, 0.2, 1)
    assert row["block.lifetime"] != row["block.lifetime"]


def test_an_evicted_block_is_a_row_and_stands_for_those_that_were_not_watched(watched: Any) -> None:
    watch, rows = watched(config(blocks_watched=0.25))
    event = Bag(lifetime_seconds=6.0, idle_seconds=5.0, reuse_gaps_seconds=(1.0, 3.0))
    watch.record(state(kv_cache_eviction_events=[event]), iteration(), 0)
    row = rows.requests[0]
    assert (row["block.lifetime"], row["block.idle"], row["block.reuse_gap"]) == (6.0, 5.0, 2.0)
    assert rows.steps[-1]["cache.evictions"] == 4


def test_evictions_are_unknown_where_vllm_watches_no_blocks(watched: Any) -> None:
    watch, rows = watched()
    watch.record(state(kv_cache_eviction_events=[]), iteration(), 0)
    assert "cache.evictions" not in rows.steps[-1]


def test_step_times_come_with_the_details(watched: Any) -> None:
    watch, rows = watched(config(details=True))
    watch.record(state(iteration_details=step(prefill=200, decode=3, requests=1)), iteration(), 0)
    watch.record(state(iteration_details=step(decode=4)), iteration(), 0)
    last = rows.steps[-1]
    assert (last["time.step"], last["time.prefill"], last["time.decode"]) == pytest.approx((0.04, 0.02, 0.02))
    assert (last["batch.decode_steps"], last["batch.tokens_per_step"]) == (1, 4)


def test_engines_behind_one_server_are_added_up(watched: Any) -> None:
    watch, rows = watched(engines=(0, 1))
    watch.record(state(running=2, usage=0.2), iteration(), 0)
    watch.record(state(running=3, usage=0.6), iteration(), 1)
    last = rows.steps[-1]
    assert (last["sched.running"], last["sched.max_running"]) == (5, 8)
    assert last["kv.usage_ratio"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("now", "before", "preempted", "limit"),
    [
        (state(), state(), 0, ""),
        (state(4, waiting=9), state(4, waiting=9), 0, "cap"),
        (state(4, waiting=1), state(4, waiting=0), 0, ""),
        (state(3, waiting=2, usage=0.99), state(3, waiting=2), 0, "kv"),
        (state(3, waiting=2, usage=0.6), state(3, waiting=2), 0, ""),
        (
            state(3, waiting=2, usage=0.6, iteration_details=step(decode=3)),
            state(3, waiting=2, iteration_details=step(decode=3)),
            0,
            "kv",
        ),
        # A request that ended in this step ran in it.
        (
            state(3, waiting=2, iteration_details=step(decode=4)),
            state(4, waiting=2, iteration_details=step(decode=4)),
            0,
            "cap",
        ),
        (
            state(3, waiting=2, iteration_details=step(decode=3)),
            state(3, waiting=3, iteration_details=step(90, 3, requests=1)),
            0,
            "",
        ),
        (state(3, waiting=2, iteration_details=step(250, 6, requests=1)), state(3, waiting=2), 0, "budget"),
        (state(3, waiting=2, iteration_details=step(50, 3, requests=1)), state(3, waiting=2), 0, ""),
        (state(), None, 1, "kv"),
        (state(num_skipped_waiting_reqs=3), state(), 0, "deferred"),
    ],
)
def test_the_limit_that_bound_a_step_is_named_or_not_guessed(now: Bag, before: Bag, preempted: int, limit: str) -> None:
    found = binding(now, before, preempted, LIMITS)
    assert found == {
        "cap": "sched.cap_bound_steps",
        "kv": "sched.kv_bound_steps",
        "budget": "sched.budget_bound_steps",
        "deferred": "sched.deferred_steps",
        "": "",
    }.get(limit)


def test_an_unknown_version_is_one_line_and_the_engine_runs_on(watched: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "vllm.kvscope")
    watch, _ = watched()
    for _ in range(3):
        watch.record(Bag(running=1), iteration(), 0)
    assert not watch.active
    assert len(caplog.records) == 1
    assert "stepped aside" in caplog.text


def test_a_config_of_another_shape_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "vllm.kvscope")
    watch = Watch(Bag(), (0,))
    watch.record(state(), iteration(), 0)
    assert len(caplog.records) == 1


def test_a_second_engine_of_a_process_does_not_take_the_firsts_file(
    watched: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "vllm.kvscope")
    first, rows = watched()
    second, _ = watched()
    first.record(state(), iteration(), 0)
    assert (first.active, second.active, len(rows.steps)) == (True, False, 1)


def test_the_logger_is_a_class_of_vllms_own_base(monkeypatch: pytest.MonkeyPatch, watched: Any) -> None:
    from abc import ABC, abstractmethod
    from types import ModuleType

    class Base(ABC):
        @abstractmethod
        def record(self) -> None: ...

        @abstractmethod
        def something_new(self) -> None: ...

    loggers = ModuleType("vllm.v1.metrics.loggers")
    loggers.AggregateStatLoggerBase = Base  # type: ignore[attr-defined]
    metrics = ModuleType("vllm.v1.metrics")
    metrics.loggers = loggers  # type: ignore[attr-defined]
    for name, module in [
        ("vllm", ModuleType("vllm")),
        ("vllm.v1", ModuleType("vllm.v1")),
        ("vllm.v1.metrics", metrics),
        ("vllm.v1.metrics.loggers", loggers),
    ]:
        monkeypatch.setitem(__import__("sys").modules, name, module)
    made = attach_vllm.__getattr__("StatLogger")
    monkeypatch.delitem(vars(attach_vllm), "StatLogger")
    assert issubclass(made, Base)
    logger = made(vllm_config=Bag(), engine_indexes=[0])
    logger.record(scheduler_stats=state(), iteration_stats=iteration(), mm_cache_stats=None, engine_idx=0)
    logger.log()
    logger.record_sleep_state(1, 0)
