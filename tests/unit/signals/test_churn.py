"""Work undone soon after it was done, memory nobody can use, and what tells a warm engine from a cold one."""

from __future__ import annotations

import pytest

from kvscope import signals
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Store
from probes.sample import Sample
from tests.synthetic import State, Stretch, store_of, stream

ROWS = 40


def value(name: str, store: Store) -> float:
    found = signals.compute(name, store, store.segments[-1])
    assert isinstance(found, Reading), found
    return found.value


def growing(**per_second: float) -> Store:
    """Counters (and gauges, given with a leading g_) once a second; dots are written __."""
    store = Store()
    for t in range(ROWS):
        for name, amount in per_second.items():
            gauge, metric = name.startswith("g_"), name.removeprefix("g_").replace("__", ".")
            store.add([Sample(metric, amount if gauge else amount * (t + 1), float(t))])
    return store


def test_time_without_any_request_is_told_by_the_engine_where_it_counts_it() -> None:
    assert value("busy_sample_share", growing(time__step=0.1, time__idle=0.9)) == pytest.approx(0.1)


def test_requests_take_turns_when_a_step_computes_fewer_tokens_than_run() -> None:
    assert value("step_token_turns", growing(g_sched__running=6, g_batch__tokens_per_step=3)) == pytest.approx(2.0)


def test_a_batch_could_hold_all_that_run_if_nobody_waited_for_a_turn() -> None:
    store = growing(g_sched__running=6, tokens__generated=2, batch__decode_steps=1)
    assert value("decode_turns", store) == pytest.approx(3.0)


def test_memory_is_stranded_or_in_holes() -> None:
    store = growing(g_kv__free_bytes=100.0, g_kv__stranded_bytes=80.0, g_kv__largest_free_run_bytes=10.0)
    assert value("kv_stranded_share", store) == pytest.approx(0.8)
    assert value("kv_longest_run_share", store) == pytest.approx(0.1)


def test_a_batch_grows_for_what_a_step_does_once() -> None:
    store = store_of(stream([Stretch("now", State(shares={"linear": 0.5, "attend": 0.5}, running=4, waiting=4))]))
    once = value("step_headroom_share", store)
    assert value("batch_growth_gain", store) == pytest.approx(2 / (once + 2 * (1 - once)), rel=0.02)


def test_a_pool_full_of_cached_prefixes_still_takes_the_next_request() -> None:
    full = {"g_kv__assumed_bytes": 99.0, "g_kv__reserved_bytes": 100.0, "g_sched__running": 4.0}
    assert value("kv_assumed_next_share", growing(**full)) > 1.0
    assert value("kv_assumed_next_share", growing(**full, sched__kv_bound_steps=0.0)) < 1.0
    assert value("kv_assumed_next_share", growing(**full, sched__kv_bound_steps=1.0)) > 1.0


def test_prompts_that_ease_off_are_a_warm_up() -> None:
    store = Store()
    for t in range(40):
        store.add([Sample("time.step", float(t), float(t)), Sample("time.prefill", float(min(t, 20)), float(t))])
    assert value("prefill_settling", store) == pytest.approx(1.0, abs=0.1)
    assert isinstance(signals.compute("prefill_settling", growing(time__step=1.0), store.segments[-1]), Missing)


def test_compiling_counts_by_its_events_not_by_its_spread() -> None:
    store = growing(compile__time=0.05, compile__events=1.0, time__step=1.0)
    found = signals.compute("compile_time_share", store, store.segments[-1])
    assert isinstance(found, Reading)
    assert found.value == pytest.approx(0.05)
    assert found.error == pytest.approx(0.1 / 39**0.5)
