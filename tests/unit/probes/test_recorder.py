"""The recorder turns a step's numbers into one row."""

from __future__ import annotations

import pytest

from probes.catalog import CATALOG, metric_of
from probes.openmetrics import prometheus_name
from probes.recorder import Recorder, step_columns
from tests.unit.probes.sink import ListSink


def test_counters_grow_and_gauges_hold() -> None:
    sink = ListSink()
    columns = step_columns(["time.step", "sched.running"], ["kv.bytes_per_layer"], layers=2)
    recorder = Recorder(sink, columns, ["latency.ttft"])
    recorder.add("time.step", 0.5)
    recorder.set("sched.running", 8)
    recorder.set_layers("kv.bytes_per_layer", [100.0, 200.0])
    recorder.commit()
    recorder.add("time.step", 0.25)
    recorder.commit()
    assert [row[1:] for row in sink.steps] == [[0.5, 8, 100.0, 200.0], [0.75, 8, 100.0, 200.0]]
    assert sink.steps[0][0] <= sink.steps[1][0]


def test_columns_that_follow_each_other_are_set_at_once_and_others_refused() -> None:
    sink = ListSink()
    recorder = Recorder(sink, step_columns(["time.step", "time.idle", "sched.running", "sched.waiting"], [], 0), [])
    put = recorder.setter("time.idle", "sched.running")
    recorder.set("sched.waiting", 3)
    put(0.5, True)
    recorder.commit()
    assert sink.steps[0][1:] == [0.0, 0.5, 1.0, 3.0]
    with pytest.raises(AssertionError, match="do not follow"):
        recorder.setter("time.step", "sched.running")


def test_a_column_outside_the_catalogue_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match=r"time\.nonsense"):
        step_columns(["time.nonsense"], [], layers=1)


def test_a_request_row_has_every_column_in_order() -> None:
    sink = ListSink()
    recorder = Recorder(sink, ["t"], ["latency.ttft", "latency.tpot"])
    recorder.finish_request({"latency.tpot": 0.01, "latency.ttft": 0.2})
    assert sink.requests == [[0.2, 0.01]]


def test_prometheus_names_carry_their_unit_and_are_unique() -> None:
    names = [prometheus_name(metric) for metric in CATALOG.values()]
    assert prometheus_name(CATALOG["kv.usage_ratio"]) == "kvscope_kv_usage_ratio"
    assert prometheus_name(CATALOG["latency.ttft"]) == "kvscope_latency_ttft_seconds"
    assert prometheus_name(CATALOG["tokens.generated"]) == "kvscope_tokens_generated_total"
    assert prometheus_name(CATALOG["kv.resident_bytes"]) == "kvscope_kv_resident_bytes"
    assert len(set(names)) == len(names)


def test_a_histogram_part_is_found_under_its_metric() -> None:
    found = metric_of("latency.ttft.bucket")
    assert found is not None
    assert found.name == "latency.ttft"
    assert metric_of("no.such.metric") is None
