"""Numbers are written the way people say them, in one unit a line."""

from __future__ import annotations

import pytest

from kvscope import amounts


@pytest.mark.parametrize(
    ("value", "unit", "error", "text"),
    [
        (0.0361, "s", 0.0004, "36.1 ms ± 0.4"),
        (0.0, "s", None, "0 s"),
        (2.5e-5, "s", None, "25.0 µs"),
        (90.0, "s", 1.5, "90 s ± 1.5"),
        (330e6, "B", 4e6, "315 MiB ± 4"),
        (1536.0, "B", None, "1.50 KiB"),
        (0.155, "ratio", 0.004, "15.5 % ± 0.4"),
        (0.0, "ratio", 0.0, "0 %"),
        (512.25, "1/s", 6.0, "512/s ± 6"),
        (0.0766, "1/s", None, "0.0766/s"),
        (11.83, "requests", 0.9, "11.8 ± 0.9"),
        (349440.0, "tokens", None, "349 k tok"),
        (2500.0, "tokens", None, "2500 tok"),
        (3.0, "requests", None, "3"),
        (1.25, "cores", 0.1, "1.25 cores ± 0.10"),
        (-0.5, "ratio", None, "-50 %"),
    ],
)
def test_an_amount(value: float, unit: str, error: float | None, text: str) -> None:
    assert amounts.amount(value, unit, error) == text


def test_a_pair_is_in_one_unit() -> None:
    assert amounts.pair(1.1e9, 330e6, "B", 4e6) == "1.02 → 0.31 GiB ± 0.004"
    assert amounts.pair(0.0301, 0.0361, "s") == "30.1 → 36.1 ms"
    assert amounts.pair(0.0, 5.0, "1/s") == "0 → 5/s"


def test_lengths_and_times() -> None:
    assert amounts.span(0, 60) == "60 s"
    assert amounts.span(0, 600) == "10 min"
    assert amounts.span(0, 86400) == "24.0 h"
    assert amounts.clock(1_790_000_000.0) == "2026-09-21 14:13:20Z"
