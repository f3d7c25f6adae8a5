"""Every step leaves one row in which the parts of its time add up, and every request leaves its own."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from engine.exposition import latency_histograms, render
from engine.instruments import REQUEST_COLUMNS, Instruments, columns
from engine.llm import Engine
from probes.recorder import Recorder
from tests.unit.engine.tiny import CONFIG, engine, prompt, run
from tests.unit.probes.sink import ListSink

PARTS = (
    *("time.host", "time.linear", "sparse.index_time", "time.gather", "time.attend", "decompress.time"),
    *("tier.transfer_time", "time.sample"),
)


def observed(**knobs: str) -> tuple[Engine, ListSink, Instruments]:
    made, sink = engine(**knobs), ListSink()  # type: ignore[arg-type]
    recorder = Recorder(sink, columns(CONFIG.layers), REQUEST_COLUMNS)
    made.probe = Instruments(recorder, latency_histograms())
    return made, sink, made.probe


def test_the_parts_of_decode_time_add_up_to_no_more_than_the_whole() -> None:
    made, sink, _ = observed(policy="combined", kernels="generic")
    for seed in range(3):
        made.submit(prompt(150, seed=seed), 20)
    run(made)
    names = columns(CONFIG.layers)
    last = dict(zip(names, sink.steps[-1], strict=True))
    parts = sum(last[name] for name in PARTS)
    assert 0.8 * last["time.decode"] < parts <= last["time.decode"] * 1.001
    assert math.isclose(last["time.step"], last["time.decode"] + last["time.prefill"])
    assert all(last[name] > 0 for name in ("sparse.index_time", "time.gather", "time.attend", "decompress.time"))


def test_a_row_tells_what_was_read_of_what_there_was() -> None:
    made, sink, _ = observed(policy="combined", kept_share="0.5")
    made.submit(prompt(200), 10)
    run(made)
    last = dict(zip(columns(CONFIG.layers), sink.steps[-1], strict=True))
    assert 0.4 < last["sparse.entries_read"] / last["sparse.entries_total"] < 0.75
    assert last["tier.hot_accesses"] > 0
    assert last["tier.cold_accesses"] > 0
    assert last["sparse.layer_entries_read[1]"] > 0


def test_per_layer_bytes_add_up_to_the_resident_bytes() -> None:
    made, sink, _ = observed()
    made.submit(prompt(100), 4)
    run(made)
    for row in sink.steps:
        named = dict(zip(columns(CONFIG.layers), row, strict=True))
        layers = sum(named[f"kv.bytes_per_layer[{layer}]"] for layer in range(CONFIG.layers))
        assert math.isclose(layers, named["kv.resident_bytes"])


def test_a_finished_request_leaves_its_latencies() -> None:
    made, sink, _ = observed()
    made.submit(prompt(40), 5)
    run(made)
    (row,) = sink.requests
    named = dict(zip(REQUEST_COLUMNS, row, strict=True))
    assert named["latency.e2e"] >= named["latency.ttft"] >= named["sched.queue_time"] >= 0
    assert math.isclose(named["latency.e2e"], named["latency.ttft"] + named["latency.decode_time"])
    assert (named["request.tokens_in"], named["request.tokens_out"]) == (40, 5)


@pytest.mark.parametrize("form", ["cold_int8", "merged", "lowrank"])
def test_the_bytes_of_a_request_are_those_of_the_forms_its_blocks_have(form: str) -> None:
    made, sink, _ = observed(policy="combined", cold_form=form, hot_share="0.1", prefix_cache="off")
    request = made.submit(prompt(200), 8)
    held = 0
    while made.has_work:
        held = made.cache.arena.live_bytes or held
        made.step()
    (row,) = sink.requests
    told = dict(zip(REQUEST_COLUMNS, row, strict=True))["request.kv_bytes"]
    whole = -(-(200 + 8) // 16) * made.cache.geometry.pages_per_block * made.cache.geometry.hot_page_bytes
    assert request.finished
    assert told == pytest.approx(held, rel=0.08)
    assert told < 0.75 * whole


def test_a_step_that_was_not_timed_by_part_adds_nothing_to_what_was() -> None:
    made, sink, _ = observed()
    made.runner.timed_every = 4
    made.submit(prompt(40), 20)
    run(made)
    timed, steps = (columns(CONFIG.layers).index(name) for name in ("time.decode_timed", "batch.decode_steps"))
    grew = [after[timed] > before[timed] for before, after in pairwise(sink.steps) if after[steps] > before[steps]]
    assert grew == [step % 4 == 0 for step in range(len(grew))]
    assert len(grew) >= 16


def test_the_page_is_read_by_the_official_parser() -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    made, _, instruments = observed()
    made.submit(prompt(40), 5)
    run(made)
    page = render(instruments.recorder.snapshot(), instruments.histograms, {"engine": "test", "model": 'a"b'})
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert families["kvscope_tokens_generated"].type == "counter"
    assert families["kvscope_latency_ttft_seconds"].type == "histogram"
    assert families["kvscope_kv_bytes_per_layer"].samples[1].labels == {"layer": "1"}
    assert families["kvscope_engine"].samples[0].labels["model"] == 'a"b'


def test_without_a_probe_nothing_is_measured_for_it() -> None:
    made = engine()
    made.submit(prompt(20), 3)
    run(made)
    assert made.probe is None


def test_the_first_row_after_a_change_holds_what_the_pool_holds_then() -> None:
    made, sink, _ = observed()
    made.submit(prompt(200), 40)
    for _ in range(9):
        made.step()
    before = dict(zip(columns(CONFIG.layers), sink.steps[-1], strict=True))
    made.set_knobs({"policy": "combined", "hot_share": "0.1", "window_tokens": "32"})
    made.step()
    first = dict(zip(columns(CONFIG.layers), sink.steps[-1], strict=True))
    assert first["kv.resident_bytes"] == sum(made.cache.weighed()[0]) < 0.8 * before["kv.resident_bytes"]
    assert first["kv.cold_entries[0]"] > 0


def test_moves_over_the_host_link_and_changes_of_precision_have_names_of_their_own() -> None:
    made, sink, _ = observed(policy="combined", host_mib="1", host_share="0.9", hot_share="0.1", host_link_mb_s="1000")
    made.submit(prompt(200), 40)
    run(made)
    last = dict(zip(columns(CONFIG.layers), sink.steps[-1], strict=True))
    counts = made.residency.host_counts
    assert last["precision.bytes_out"] == made.residency.bytes_out > 0
    assert last["tier.bytes_out"] == counts.bytes_out > 0
    assert last["tier.bytes_in"] == counts.bytes_in > 0
    assert last["precision.bytes_in"] == made.residency.bytes_in
    assert last["tier.blocks_out"] > 0
    assert last["tier.blocks_in"] > 0
    assert last["tier.load_time"] > 0
    assert last["tier.stall_time"] > 0
    assert last["tier.bytes_in"] > 0
    assert last["tier.capacity_bytes"] == 1 << 20
    assert last["tier.link_limit"] == 1e9


def test_a_request_given_up_is_counted() -> None:
    made, sink, _ = observed()
    gone = made.submit(prompt(40), 10)
    made.step()
    made.cancel(gone)
    made.cancel(gone)
    made.submit(prompt(40, seed=2), 2)
    run(made)
    last = dict(zip(columns(CONFIG.layers), sink.steps[-1], strict=True))
    assert (last["requests.cancelled"], last["requests.finished"]) == (1, 1)
