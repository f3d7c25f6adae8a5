"""Whatever a Prometheus, an engine's JSON or a vendor's tool answers: samples or one clear error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvscope.errors import KvscopeError
from kvscope.sources._promapi import data_of, is_prometheus, parse_address, series_of
from kvscope.sources.fleet import addresses, is_fleet
from kvscope.sources.maps import llamacpp
from kvscope.sources.npu import NpuSource
from kvscope.sources.prometheus import PrometheusSource
from kvscope.sources.scrape import is_url, page_url
from kvscope.sources.trtllm_json import IterationReader, iterations_or_error

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400) | st.integers(-5, 5),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["NaN", "+Inf", "1", "vllm:num_requests_running", "engine-0:8000"]),
)
KEYS = ["result", "metric", "values", "value", "__name__", "instance", "engine", "status", "data", "activeTargets",
        "scrapeInterval", "iter", "kvCacheStats", "inflightBatchingStats", "usedNumBlocks", "maxNumBlocks",
        "tokensPerBlock", "reusedBlocks", "missedBlocks", "iterLatencyMS", "numGenRequests", "n_ctx", "is_processing",
        "n_prompt_tokens", "next_token", "n_decoded"]  # fmt: skip
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)
points = st.lists(
    st.tuples(st.floats(0, 2e9) | st.just(1000.0), st.floats().map(repr) | st.text(max_size=4)), max_size=5
)
series = st.builds(
    lambda name, instance, engine, values: {
        "metric": {"__name__": name, "instance": instance, "engine": engine},
        "values": [list(point) for point in values],
    },
    st.sampled_from(["vllm:num_requests_running", "vllm:generation_tokens_total", "vllm:cache_config_info", "up"]),
    st.sampled_from(["a:1", "b:1", ""]),
    st.sampled_from(["0", "1"]),
    points,
)


@given(st.lists(series | documents, max_size=6), documents)
def test_a_fleet_is_read_from_whatever_prometheus_says(found: list[Any], targets: Any) -> None:
    def call(path: str, form: Mapping[str, str] | None = None) -> Any:
        if path.startswith("targets"):
            return targets
        return ["vllm:num_requests_running", 3] if path.startswith("label") else {"result": found}

    try:
        source = PrometheusSource("prom+http://host:9090", wall=lambda: 1000.0, call=call)
    except KvscopeError:
        return
    assert all(math.isfinite(sample.value) for sample in source.poll().samples)
    source.describe()


@given(documents, st.text(max_size=60))
def test_an_answer_of_the_api_is_data_or_an_error(document: Any, text: str) -> None:
    for body in (json.dumps(document), text):
        with suppress(KvscopeError):
            list(series_of(data_of(body, "http://host")))


@given(st.lists(st.lists(documents, max_size=4), max_size=3), st.text(max_size=40))
def test_iteration_statistics_of_any_shape_add_up_to_numbers(answers: list[list[Any]], text: str) -> None:
    reader = IterationReader()
    for t, answer in enumerate([*map(json.dumps, answers), text, "[" + text]):
        result = reader.read(answer, float(t))
        assert all(math.isfinite(sample.value) for sample in result.samples)
        with suppress(KvscopeError):
            iterations_or_error(answer, "here")


@given(documents)
def test_slots_of_any_shape_are_numbers_or_nothing(document: Any) -> None:
    assert all(math.isfinite(value) and value >= 0 for value in llamacpp.read_side(document).values())


@given(
    st.text(max_size=200), st.lists(st.sampled_from(["NPU ID : 1", "HBM Capacity(MB) : 1", "Aicore Usage Rate(%) : 9"]))
)
def test_any_text_of_npu_smi_is_readings_or_nothing(text: str, known: list[str]) -> None:
    source = NpuSource(run=lambda _: "\n".join([*known, text]))
    assert all(math.isfinite(sample.value) for sample in source.poll().samples)


@given(
    st.sampled_from(["", "http://", "https://", "prom+http://", "prom+https://", "ftp://", "prom+http://h?"]),
    st.text(max_size=30) | st.from_regex(r"[a-z\[\]:@?&=%,./0-9]{0,20}"),
)
def test_any_address_is_understood_or_refused_in_a_line(scheme: str, rest: str) -> None:
    text = scheme + rest
    for parse in (page_url, lambda one: parse_address(one, {})):
        with suppress(KvscopeError):
            parse(text)
    is_url(text), is_fleet(text), is_prometheus(text), addresses(text)
