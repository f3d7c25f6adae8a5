"""When it began: of a symptom, and of a change nobody marked."""

from __future__ import annotations

import pytest

from kvscope.diagnose import diagnose
from kvscope.judge import Pair
from kvscope.onset import propose_cut, symptom_onset
from kvscope.playbook import load_all
from kvscope.sources.source import Description
from kvscope.store import Store
from probes.sample import Sample
from tests.situations import COMPRESSED, DENSE
from tests.synthetic import State, Stretch, store_of, stream

CAPPED = next(rule for rule in load_all() if rule.id == "admission-capped")


def unmarked(*states: State, seed: int = 0, rows: int = 60) -> Store:
    items = stream([Stretch("x", state) for state in states], rows=rows, seed=seed)
    return store_of(item for item in items if isinstance(item, Sample))


def test_a_symptom_began_when_requests_started_to_wait() -> None:
    calm = DENSE.but(waiting=0, resident=4e7)
    store = unmarked(calm, calm.but(waiting=6))
    began = symptom_onset(CAPPED.symptom, Pair(store, store.segments[0]))
    assert began == pytest.approx(1060, abs=6)


def test_a_symptom_that_is_over_has_no_onset() -> None:
    busy = DENSE.but(waiting=6, resident=4e7)
    store = unmarked(busy, busy.but(waiting=0))
    assert symptom_onset(CAPPED.symptom, Pair(store, store.segments[0])) is None


def test_a_step_nobody_marked_is_found_with_its_signal() -> None:
    store = unmarked(DENSE, COMPRESSED)
    found = propose_cut(store, store.segments[0])
    assert found is not None
    when, signal = found
    assert signal == "kv_resident_bytes"
    assert when == pytest.approx(1060, abs=6)


def test_noise_alone_is_no_step() -> None:
    for seed in range(20):
        store = unmarked(DENSE, DENSE, seed=seed)
        assert propose_cut(store, store.segments[0]) is None


def test_a_load_that_ends_is_no_step() -> None:
    store = unmarked(DENSE, DENSE.but(running=0, waiting=0, tokens_per_s=0.0, resident=0.0))
    assert propose_cut(store, store.segments[0]) is None


def test_a_stream_that_nobody_marked_is_compared_with_itself_across_its_step() -> None:
    store = unmarked(DENSE, COMPRESSED)
    found = diagnose(store, load_all(), Description("ring", "pid 1"))
    assert [segment.name for segment in found.segments] == ["start", "after-a-step"]
    assert "nobody marked a change" in found.notices[0]
    told = {one.id: one.verdict for one in found.findings}
    assert told["memory-down-throughput-flat"] in ("likely", "possible")


def test_a_steady_stream_is_not_cut() -> None:
    found = diagnose(unmarked(DENSE, DENSE), load_all(), Description("ring", "pid 1"))
    assert len(found.segments) == 1
