"""TensorRT-LLM's iteration statistics drain when read: they are added up, and it is said."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from kvscope.errors import SourceError
from kvscope.sources._reader import reader_for
from kvscope.sources.scrape import ScrapeSource
from kvscope.sources.trtllm_json import DRAINS, EMPTY, IterationReader
from probes.sample import Sample


def iteration(number: int, **more: Any) -> dict[str, Any]:
    return {
        "iter": number,
        "iterLatencyMS": 20.0,
        "numQueuedRequests": 2,
        "maxBatchSizeRuntime": 64,
        "kvCacheStats": {
            "maxNumBlocks": 100,
            "usedNumBlocks": 25,
            "tokensPerBlock": 32,
            "reusedBlocks": 30,
            "missedBlocks": 70,
        },
        "inflightBatchingStats": {"numScheduledRequests": 5, "numGenRequests": 4, "numCtxTokens": 128},
        **more,
    }


def text(*iterations: dict[str, Any]) -> str:
    return json.dumps(list(iterations))


def values(samples: list[Sample]) -> dict[str, float]:
    return {sample.metric: sample.value for sample in samples}


def test_gauges_are_of_the_last_iteration_and_counters_of_all_that_were_drained() -> None:
    reader = IterationReader()
    reader.read(text(iteration(1), iteration(2)), 1.0)
    found = values(reader.read(text(iteration(3)), 2.0).samples)
    assert found["batch.steps"] == 3
    assert found["time.step"] == pytest.approx(0.06)
    assert found["tokens.generated"] == 12
    assert found["tokens.prefilled"] == 384
    assert (found["sched.running"], found["sched.waiting"], found["sched.max_running"]) == (5, 2, 64)
    assert (found["kv.usage_ratio"], found["kv.used_tokens"], found["kv.capacity_tokens"]) == (0.25, 800, 3200)
    assert (found["prefix.hits"], found["prefix.queries"]) == (960, 3200)


def test_a_step_s_time_is_that_of_prefill_where_most_of_its_tokens_are_a_prompt_s() -> None:
    alone = {"numScheduledRequests": 4, "numGenRequests": 4, "numCtxTokens": 0}
    reader = IterationReader()
    found = values(
        reader.read(text(iteration(1), iteration(2, inflightBatchingStats=alone, iterLatencyMS=8.0)), 1.0).samples
    )
    assert (found["time.step"], found["time.prefill"]) == (pytest.approx(0.028), pytest.approx(0.02))
    assert (found["latency.step.count"], found["latency.step.sum"]) == (1, pytest.approx(0.008))
    assert (found["batch.decode_steps"], found["batch.tokens_per_step.sum"]) == (1, 136)


def test_nothing_new_keeps_the_counters_and_says_what_an_empty_list_may_mean() -> None:
    reader = IterationReader()
    reader.read(text(iteration(1)), 1.0)
    result = reader.read("[]", 2.0)
    assert values(result.samples)["batch.steps"] == 1
    assert result.notices == [EMPTY]


def test_numbers_that_start_again_are_a_restart() -> None:
    reader = IterationReader()
    assert not reader.read(text(iteration(7)), 1.0).restarted
    assert reader.read(text(iteration(0)), 2.0).restarted


def test_a_live_address_with_such_statistics_is_told_by_its_answer_and_warned_of() -> None:
    answers = iter([text(iteration(1)), text(iteration(2))])

    def get(url: str, timeout_s: float) -> str:
        return next(answers) if url.endswith("/metrics") else json.dumps({"version": "1.3.0"})

    seconds = itertools.count(1)
    source = ScrapeSource("host:8000", wall=lambda: float(next(seconds)), get=get)
    poll = source.poll()
    assert source.describe().engine == "tensorrt-llm"
    assert source.describe().version == "1.3.0"
    assert DRAINS in poll.notices
    assert values(source.poll().samples)["batch.steps"] == 2


@pytest.mark.parametrize("answer", ["[1, 2", '[{"a": 1}]', "[" * 100_000])
def test_another_list_is_refused(answer: str) -> None:
    with pytest.raises(SourceError, match="JSON"):
        reader_for(answer, "http://host/metrics")
