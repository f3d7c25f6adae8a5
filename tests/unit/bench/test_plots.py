"""Plots on a page: round numbers below uneven points, and no line through points that no order joins."""

from __future__ import annotations

import re
from itertools import pairwise

from kvscope.result.html import render, svg
from kvscope.result.result import Plot, Result, Series

SIZES = (1262.3, 1283.5, 1535.67, 1647.6, 4125.05)


def ticks(text: str) -> list[str]:
    return re.findall(r'<text class="x"[^>]*>([^<]+)</text>', text)


def test_uneven_points_stand_over_round_numbers_that_do_not_touch() -> None:
    plot = Plot("t", "bytes", "speed", "", (Series("front", SIZES, (1.0, 2.0, 3.0, 4.0, 5.0)),))
    places = [float(x) for x in re.findall(r'<text class="x" x="([\d.]+)"', svg(plot))]
    assert ticks(svg(plot)) == ["2000", "3000", "4000"]
    assert all(later - earlier > 40 for earlier, later in pairwise(places))


def test_named_steps_keep_their_names() -> None:
    plot = Plot("t", "tokens", "x", "", (Series("one", (48.0, 96.0, 4096.0), (1.0, 2.0, 3.0)),), even=True)
    assert ticks(svg(plot)) == ["48", "96", "4096"]


def test_points_that_nothing_joins_are_drawn_as_points() -> None:
    joined, apart = (Series(name, SIZES[:2], (1.0, 2.0), joined) for name, joined in (("a", True), ("b", False)))
    picture = svg(Plot("t", "x", "y", "", (joined, apart)))
    assert picture.count("<polyline") == 1
    assert picture.count("<circle") == 4


def test_settings_are_written_as_words() -> None:
    page = render(Result("tune", "t", settings={"blocks": (16, 64), "set": []}))
    assert "16, 64" in page
    assert ">none<" in page
