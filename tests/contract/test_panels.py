"""Every panel found on disk shows an empty view, a full one and one in which nothing is known, at any size."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from textual.geometry import Region

from kvscope.tui.app import KvscopeApp
from kvscope.tui.panels.panel import Panel
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.widgets.canvas import Canvas
from kvscope.view import View
from tests.tui.still import StillSession
from tests.tui.views import empty_view, full_view, missing_view

SIZES = [(60, 15), (80, 24), (120, 36), (160, 48), (250, 70)]
VIEWS: dict[str, Callable[[], View]] = {"empty": empty_view, "full": full_view, "missing": missing_view}


def panels() -> list[type[Panel]]:
    """Every kind there is."""
    return [one for one in Panel.__subclasses__() if one.__module__.startswith("kvscope.")]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.__name__)
def test_a_panel_says_what_it_is_and_reads_only_what_a_view_has(panel: type[Panel]) -> None:
    fields = {field.name for field in dataclasses.fields(View)}
    assert panel.TITLE
    assert set(panel.READS) <= fields


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_panel_shows_every_view_within_the_screen(name: str, size: tuple[int, int]) -> None:
    app = KvscopeApp(StillSession(VIEWS[name]()), interval_s=60)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for _ in range(8):
            main = app.screen
            assert isinstance(main, MainScreen)
            _assert_within(main, size)
            await pilot.press("right_square_bracket")
            await pilot.pause()


def _assert_within(main: MainScreen, size: tuple[int, int]) -> None:
    shown = [panel for panel in main.query(Panel) if panel.display]
    assert any(panel.slot == "top" for panel in shown)
    assert any(panel.slot != "top" for panel in shown)
    screen = Region(0, 0, *size)
    for panel in shown:
        assert panel.region.area > 0, panel
        assert screen.contains_region(panel.region), panel
        for canvas in panel.query(Canvas):
            rows = [canvas.render_line(y) for y in range(canvas.size.height)]
            assert all(row.cell_length == canvas.size.width for row in rows), panel
            assert not any("not drawn" in row.text for row in rows), panel
