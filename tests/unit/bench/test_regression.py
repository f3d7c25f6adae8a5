"""B replaces A only where it says the same, or loses no more than two points of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvscope.bench import _child
from kvscope.bench.regression import result_of
from kvscope.cli import run

GENERIC, BLOCK = {"kernels": "generic"}, {"kernels": "block"}
SPARSE = {"policy": "block_sparse"}


def row(**changes: Any) -> dict[str, Any]:
    start = {
        "context": 1024,
        "one_kernel": "",
        "steps": 82,
        "scale": 3.0,
        "differs": {"p50": 1e-6, "p90": 2e-6, "p99": 3e-6, "p99.9": 3e-6, "p100": 4e-6},
        "beyond": 0,
        "worst_at": 1056,
        "diverged": 0,
        "first_diverging": None,
        "checked": 100,
        "right_a": 100,
        "right_b": 100,
    }
    return {**start, **changes}


def test_kernels_that_differ_by_rounding_pass() -> None:
    found = result_of([row()], GENERIC, BLOCK, "shipped")
    assert not found.failed
    assert found.extra["verdict"] == "passes"


def test_kernels_that_differ_by_more_fail_though_no_answer_is_lost() -> None:
    found = result_of([row(beyond=2)], GENERIC, BLOCK, "shipped")
    assert found.failed
    assert "2 of 82 steps" in found.warns[0]


def test_another_policy_may_differ_as_long_as_its_answers_are_right() -> None:
    parted = {"beyond": 80, "diverged": 9, "first_diverging": {"step": 3, "context": 1027}}
    assert not result_of([row(**parted, right_b=98)], {}, SPARSE, "shipped").failed
    assert result_of([row(**parted, right_b=97)], {}, SPARSE, "shipped").failed


def test_where_nobody_knows_the_answers_changed_tokens_count() -> None:
    unknown = {"checked": 0, "right_a": 0, "right_b": 0}
    assert not result_of([row(**unknown, diverged=1)], {}, SPARSE, "shipped").failed
    assert result_of([row(**unknown, diverged=2)], {}, SPARSE, "shipped").failed


def test_one_kernel_on_both_sides_is_no_comparison_and_what_would_be_one_is_named() -> None:
    (warning,) = result_of([row(one_kernel="dense")], GENERIC, BLOCK, "shipped").warns
    assert warning.startswith("Both sides run the same kernel, dense, so nothing was compared.")
    assert "--set policy=combined" in warning
    (warning,) = result_of([row(one_kernel="block")], BLOCK, BLOCK, "shipped").warns
    assert "the same kernel, block" in warning
    assert "policy=combined" not in warning
    assert not result_of([row()], GENERIC, BLOCK, "shipped").warns
    assert not result_of([row(one_kernel="block")], BLOCK, {**BLOCK, "kept_share": "0.5"}, "shipped").warns


@pytest.mark.parametrize(("beyond", "code"), [(0, 0), (5, 1)])
def test_the_command_ends_in_what_was_found(beyond: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(order: dict[str, Any], *_: object) -> Iterator[dict[str, Any]]:
        yield row(beyond=beyond)

    monkeypatch.setattr(_child, "rows", rows)
    assert run(["bench", "regression", "kernels=generic", "kernels=block"]) == code
