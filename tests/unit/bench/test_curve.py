"""A curve bounds what was measured from above with few pieces, and its margin is what the load needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.bench import curve
from kvscope.bench._curve_measure import Admitted, Held, Others, _after_old
from kvscope.bench.curve import LEAST_MARGIN, Fit, Point, fit, margin_of, points_of, with_margin
from kvscope.cli import run
from kvscope.result.result import as_json
from kvscope.result.text import render

ARTICLE = [(1024, 0.6), (4096, 0.6), (8192, 0.35), (16384, 0.35), (32768, 0.28), (65536, 0.28)]


def points(pairs: list[tuple[int, float]], spread: float = 0.0) -> list[Point]:
    return [Point(tokens, value * (1 - spread), value, value * (1 + spread)) for tokens, value in pairs]


def test_breakpoints_are_found_where_the_coefficient_falls() -> None:
    found = fit(points(ARTICLE))
    assert found.pieces == ((0, 0.6), (8192, 0.35), (32768, 0.28))
    assert found.excess == pytest.approx(0.0, abs=1e-6)
    assert found.text == "0:0.6,8192:0.35,32768:0.28"


def test_a_flat_curve_is_one_piece() -> None:
    assert fit(points([(1024, 0.25), (8192, 0.25), (65536, 0.2499)])).pieces == ((0, 0.25),)


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.2])
def test_no_measured_point_lies_above_its_piece(spread: float) -> None:
    measured = points([(48, 1.33), (96, 1.01), (384, 0.65), (768, 0.46), (2048, 0.36), (4096, 0.37)], spread)
    found = fit(measured)
    assert all(point.high <= found.coefficient(point.tokens) for point in measured)
    assert len(found.pieces) <= 4


def test_a_length_between_two_pieces_is_bounded_when_coefficients_rise() -> None:
    found = fit(points([(100, 0.2), (1000, 0.2), (10000, 0.8)]))
    assert found.coefficient(5000) == pytest.approx(0.8)


def test_the_margin_is_twice_what_repeats_differ_by_and_never_nothing() -> None:
    assert margin_of(points([(100, 0.5)])) == LEAST_MARGIN
    assert margin_of(points([(100, 0.5)], spread=0.1)) == pytest.approx(0.4)


def test_the_margin_that_the_load_needed_wins() -> None:
    tried = [
        Admitted("curve", 40.0, 50.0, preempted, 0, 1.0, margin) for preempted, margin in ((0.03, 0.05), (0.0, 0.15))
    ]
    assert with_margin(Fit(((0, 0.5),), 0.05, 0.0), tried).margin == 0.15
    assert with_margin(Fit(((0, 0.5),), 0.05, 0.0), []).margin == 0.05


def test_points_are_parts_of_the_uncompressed_size() -> None:
    held = [Held(100, 500.0, 900.0, "B"), Held(100, 700.0, 900.0, "B"), Held(200, 800.0, 900.0, "B")]
    assert points_of(held, 10.0) == [Point(100, 0.5, 0.6, 0.7), Point(200, 0.4, 0.4, 0.4)]


def test_a_reading_that_still_tells_of_the_request_before_is_dropped() -> None:
    assert list(_after_old([7.0, 7.0, 3.0, 7.0], 7.0)) == [3.0, 7.0]
    assert list(_after_old([7.0], 7.0)) == []
    assert list(_after_old([7.0], None)) == [7.0]


def test_the_result_names_the_estimate_that_promised_too_little() -> None:
    packed = [Held(100, 600.0, 1000.0, "B", (300.0, 300.0)), Held(1000, 3000.0, 10000.0, "B", (1500.0, 1500.0))]
    dense = [Held(100, 1000.0, 1000.0, "B"), Held(1000, 10000.0, 10000.0, "B")]
    measured = points_of(packed, 10.0)
    admitted = [
        Admitted("static", 3.0, 3.0, 0.0, 0, 100.0),
        Admitted("curve", 9.0, 12.0, 0.0, 0, 200.0, 0.15),
        Admitted("quarter", 14.0, 16.0, 0.2, 0, 150.0),
    ]
    found = curve.result_of(dense, packed, measured, fit(measured), admitted, {"model": "m"}, {})
    assert found.warns[0].startswith("quarter, margin 0%: 20.0%")
    assert "3.0 times as many requests" in " ".join(found.says)
    assert json.loads(as_json(found))["curve"] == [[0, 0.6], [1000, 0.3]]
    assert "an example from the literature" in render(found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--repeat", "0"], "expected at least 1"),
        (["--lengths", "long"], "expected a whole number of tokens"),
        (["--url", "http://127.0.0.1:9"], "expected an OpenAI-compatible server"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "curve", *words]) in (2, 3)
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_what_a_prefix_cache_keeps_of_others_is_taken_off() -> None:
    others = Others(amount=1_128_000.0, by_layer=(564_000.0, 564_000.0), block=128_000.0, evicted=0.0)
    held = others.taken_off(Held(1024, 5_000_000.0, 6_000_000.0, "B", (2_500_000.0, 2_500_000.0)))
    assert (held.amount, held.peak) == (4_000_000.0, 5_000_000.0)
    assert held.by_layer == (2_000_000.0, 2_000_000.0)


def test_an_interrupted_curve_goes_on(tmp_path: Path) -> None:
    held, ran = Held(48, 1.0, 2.0, "B", (0.5, 0.5)), Admitted("static", 3.0, 4.0, 0.0, 0, 200.0)
    log = curve.log_of(str(tmp_path / "log"), {"lengths": [48]})
    log.add(held, "compressed, ", 48, 1)
    log.add(ran, "static", {"admission": "static"})
    again = curve.log_of(str(tmp_path / "log"), {"lengths": [48]})
    assert again.get("compressed, ", 48, 1) == held
    assert again.get("compressed, ", 48, 0) is None
    assert again.get("static", {"admission": "static"}) == ran
    assert again.get("static", {"admission": "curve"}) is None


def test_the_flags_of_other_engines_come_from_the_pool_and_the_mix() -> None:
    says = list(curve.flags_near(fit(points([(256, 1.0), (4096, 1.0)])), 4096, 65536.0))
    assert "vLLM --max-num-seqs" in says[1]
    assert "SGLang --max-running-requests" in says[1]
    assert "are the pool's tokens / that" in list(curve.flags_near(fit(points([(256, 1.0)])), 4096, None))[1]
