"""Every panel found on disk shows an empty view, a full one and one in which nothing is known, at any size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from textual.geometry import Region

from kvscope.tui.app import KvscopeApp
from kvscope.tui.panels import discover, numbered
from kvscope.tui.panels._base import Panel
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.widgets.canvas import Canvas
from kvscope.view import View
from tests.tui.still import StillSession
from tests.tui.views import empty_view, full_view, missing_view

SIZES = [(60, 15), (80, 24), (120, 36), (160, 48), (250, 70)]
VIEWS: dict[str, Callable[[], View]] = {"empty": empty_view, "full": full_view, "missing": missing_view}


@pytest.mark.parametrize("panel", discover(), ids=lambda panel: panel.name_of())
def test_a_panel_says_what_it_is_and_reads_only_what_a_view_has(panel: type[Panel]) -> None:
    fields = {field.name for field in dataclasses.fields(View)}
    assert panel.TITLE
    assert set(panel.READS) <= fields
    assert panel.SLOT in ("top", "story", "chart", "map", "page")
    assert panel.SLOT == "top" or panel.HELP


def test_orders_are_distinct_and_number_keys_suffice() -> None:
    orders = [panel.ORDER for panel in discover()]
    assert len(set(orders)) == len(orders)
    assert len(numbered()) <= 9


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_panel_shows_every_view_within_the_screen(name: str, size: tuple[int, int]) -> None:
    app = KvscopeApp(StillSession(VIEWS[name]()), interval_s=60)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for number in range(len(numbered()) + 1):
            if number:
                await pilot.press(str(number))
                await pilot.pause()
            main = app.screen
            assert isinstance(main, MainScreen)
            _assert_within(main, size)


def _assert_within(main: MainScreen, size: tuple[int, int]) -> None:
    shown = [panel for panel in main.query(Panel) if panel.display]
    assert {panel.name_of() for panel in shown} >= {panel.name_of() for panel in discover() if panel.SLOT == "top"}
    assert any(panel.SLOT != "top" for panel in shown)
    screen = Region(0, 0, *size)
    for panel in shown:
        assert panel.region.area > 0, panel
        assert screen.contains_region(panel.region), panel
        for canvas in panel.query(Canvas):
            rows = [canvas.render_line(y) for y in range(canvas.size.height)]
            assert all(row.cell_length == canvas.size.width for row in rows), panel
            assert not any("not drawn" in row.text for row in rows), panel
