"""Admission answers from an estimate, and each strategy's estimate is what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine import admission
from engine.admission._base import Room
from engine.admission._curve import coefficient, parse
from engine.knobs import KnobError, Knobs

CURVE = "0:0.6,8192:0.35,32768:0.28"
ROOM = Room(
    pool_bytes=1_000_000,
    total_blocks=100,
    block_tokens=10,
    full_bytes=1000,
    measured_bytes=400.0,
    max_context=500,
    lengths=(100, 200),
    growth_tokens=60,
    watermark=0.02,
    curve=parse("0:0.5,150:0.25"),
    curve_margin=0.2,
)


@pytest.mark.parametrize("name", admission.names())
def test_the_first_request_always_runs(name: str) -> None:
    empty = replace(ROOM, lengths=(), growth_tokens=0, max_context=10_000)
    assert admission.get(name).admits(empty, free_blocks=50, new_blocks=50, length=9000)


@pytest.mark.parametrize("name", admission.names())
def test_nobody_is_admitted_without_room_for_the_prompt(name: str) -> None:
    assert not admission.get(name).admits(ROOM, free_blocks=5, new_blocks=6, length=60)


def test_static_counts_the_longest_context_for_everybody() -> None:
    static = admission.get("static")
    assert static.assumed_bytes(ROOM, held_tokens=5) == 2 * 500 * 1000
    assert not static.admits(ROOM, free_blocks=90, new_blocks=2, length=20)


def test_a_curve_counts_each_request_at_its_own_length_with_a_margin() -> None:
    curve = admission.get("curve")
    assert curve.assumed_bytes(ROOM, held_tokens=5) == pytest.approx(1.2 * 1000 * (100 * 0.5 + 200 * 0.25))
    assert curve.bytes_per_token(ROOM) == pytest.approx(1.2 * 1000 * 100 / 300)
    assert curve.admits(ROOM, free_blocks=90, new_blocks=5, length=2900)
    assert not curve.admits(ROOM, free_blocks=90, new_blocks=5, length=2950)


def test_a_watermark_keeps_room_for_what_will_grow_within_bounds() -> None:
    watermark = admission.get("watermark")

    def least_free(growth: int) -> int:
        room = replace(ROOM, growth_tokens=growth)
        return next(free for free in range(100) if watermark.admits(room, free, 3, 30)) - 3

    assert [least_free(growth) for growth in (0, 10, 60, 5000)] == [2, 2, 6, 10]


def test_a_curve_is_piecewise_by_length() -> None:
    curve = parse(CURVE)
    assert [coefficient(curve, tokens) for tokens in (1, 8191, 8192, 40_000)] == [0.6, 0.6, 0.35, 0.28]


def test_a_curve_comes_from_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"curve": [[0, 0.7], [4096, 0.3]]}))
    assert parse(str(path)) == ((0, 0.7), (4096, 0.3))
    assert Knobs().with_text({"curve": str(path)}).curve == str(path)


@pytest.mark.parametrize("wrong", ["", "0", "5:0.5", "0:0.5,0:0.4", "0:-1", "0:9", "a:b", "/nowhere/curve.json"])
def test_a_curve_that_cannot_be_is_refused(wrong: str) -> None:
    with pytest.raises(KnobError, match="knob curve"):
        Knobs().with_text({"curve": wrong})
