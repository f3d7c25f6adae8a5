"""A loss is named by what brings its answers back, and by nothing else."""

from __future__ import annotations

import pytest

from engine.lab.accuracy.jobs import restore
from engine.lab.accuracy.jobs.restore import FAULTS, TESTS, examine, name, recovered
from engine.lab.accuracy.laboratory import Laboratory
from engine.weights import open_model

BACK = {
    "cold_tier_over_quantised": {"bits": 1.0, "k": 0.0, "scores": 0.1, "fresh": 0.0},
    "sparse_policy_too_aggressive": {"k": 1.0, "scores": 0.0, "fresh": 0.0},
    "bad_block_selection": {"k": 1.0, "scores": 0.95, "fresh": 0.0},
    "multi_turn_eviction": {"blocks": 1.0, "fresh": 1.0},
    "eviction": {"blocks": 1.0, "fresh": 0.1},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_a_signature_of_its_own(fault: str) -> None:
    assert name({test: BACK[fault].get(test) for test in TESTS}, 0.5) == fault


def test_a_loss_that_nothing_brings_back_is_not_named() -> None:
    assert name(dict.fromkeys(TESTS, 0.2), 0.5) == "unexplained"


def test_where_nothing_is_lost_nothing_is_named() -> None:
    assert name(dict.fromkeys(TESTS, 1.0), 0.01) == "nothing_lost"
    assert recovered(1.0, 0.99, 1.0) is None


def test_what_could_not_be_restored_is_no_zero() -> None:
    assert recovered(1.0, 0.5, None) is None
    assert recovered(1.0, 0.5, 0.5) == 0.0


def test_a_choice_by_mean_keys_is_told_from_reading_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "SIZES", {False: (1, 16), True: (1, 4)})
    found = examine(Laboratory(open_model("shipped")), FAULTS["bad_block_selection"], 0, "recall")
    assert found["named"] == "bad_block_selection"
