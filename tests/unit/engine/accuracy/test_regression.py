"""Kernels that are wrong by one per cent, or at one length in thirty-two, do not pass; right ones do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine.lab.accuracy.jobs import regression
from engine.weights import open_model
from engine.weights._base import Loaded

BLOCK = 16
SHARED = {"policy": "combined", "kept_share": "0.5", "hot_share": "0.1", "min_read_tokens": "0", "window_tokens": "32"}


@pytest.fixture(scope="module")
def shipped() -> Loaded:
    return open_model("shipped")


def compared(shipped: Loaded, shared: Mapping[str, str] = SHARED, **b: str) -> Mapping[str, Any]:
    order = {
        "task": "recall",
        "contexts": [256],
        "density": 1 / 16,
        "block": BLOCK,
        "documents": 1,
        "seed": 0,
        "a": {**shared, "kernels": "block"},
        "b": {**shared, **b},
    }
    return next(regression.run(order, shipped, lambda _: None))


def test_two_right_kernels_differ_by_rounding(shipped: Loaded) -> None:
    row = compared(shipped, kernels="generic")
    assert row["beyond"] == 0
    assert row["steps"] > BLOCK
    assert row["one_kernel"] == ""


def test_a_full_policy_runs_one_kernel_whatever_was_asked_for_and_the_row_says_so(shipped: Loaded) -> None:
    row = compared(shipped, {}, kernels="generic")
    assert row["one_kernel"] == "dense"
    assert row["differs"]["p100"] == 0


def test_a_scale_off_by_one_per_cent_is_seen_in_every_step(shipped: Loaded) -> None:
    row = compared(shipped, kernels="block", wrong="scale")
    assert row["one_kernel"] == ""
    assert row["beyond"] > row["steps"] / 2


def test_a_last_block_dropped_at_one_length_is_seen_there_alone(shipped: Loaded) -> None:
    row = compared(shipped, kernels="block", wrong="last_block")
    assert row["beyond"] > 0
    assert row["first_diverging"]["context"] % BLOCK == 0


def test_an_unknown_way_of_being_wrong_names_those_there_are(shipped: Loaded) -> None:
    with pytest.raises(ValueError, match=r"did you mean 'scale'"):
        compared(shipped, kernels="block", wrong="scales")
