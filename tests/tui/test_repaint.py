"""Calm: the same view repaints nothing, a small change repaints little, units stay."""

from __future__ import annotations

import gc
from dataclasses import replace

from textual._styles_cache import StylesCache

from kvscope.format import Steady, duration, quantity, signed, with_error
from kvscope.signals.reading import Reading
from kvscope.tui.app import KvscopeApp
from kvscope.tui.palette import RAMP_STEPS, ramp
from kvscope.tui.poller import ViewReady
from kvscope.tui.screens.help import HelpScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.widgets.canvas import Canvas
from tests.tui.still import StillSession
from tests.tui.views import full_view


async def test_only_cells_that_differ_are_painted_again() -> None:
    view = full_view()
    app = KvscopeApp(StillSession(view), interval_s=60)
    async with app.run_test(size=(160, 48)) as pilot:
        app.poller.drain()
        await pilot.pause()
        main = app.screen
        assert isinstance(main, MainScreen)

        def painted() -> int:
            return sum(canvas.repainted_cells for canvas in main.query(Canvas))

        before = painted()
        main.receive(replace(view))
        assert painted() == before
        main.receive(replace(view, now_s=view.now_s + 1))
        assert 0 < painted() - before <= 8
        memory = replace(view.headlines[0], now=Reading(72.3 * 2**20, 0.4 * 2**20, "B"))
        main.receive(replace(view, now_s=view.now_s + 1, headlines=(memory, *view.headlines[1:])))
        assert painted() - before <= 16


async def test_help_stands_before_the_screen_dimmed_and_does_not_dim_it_anew_at_every_view() -> None:
    view = full_view()
    app = KvscopeApp(StillSession(view), interval_s=60)
    async with app.run_test(size=(160, 48)) as pilot:
        app.poller.drain()
        await pilot.pause()
        top = app.screen._compositor.render_strips()[0]
        await pilot.press("question_mark")
        await pilot.pause()
        behind = app.screen._compositor.render_strips()[0]
        assert behind.text == top.text
        assert [segment.style for segment in behind] != [segment.style for segment in top]
        assert isinstance(app.screen, HelpScreen)
        picture = app.screen._behind
        app.on_view_ready(ViewReady(replace(view, now_s=view.now_s + 1)))
        await pilot.pause()
        assert app.screen._behind is picture
        await pilot.resize_terminal(120, 36)
        await pilot.pause()
        assert app.screen._compositor.render_strips()[0].cell_length == 120


def caches() -> list[StylesCache]:
    """All there are; by their type, as some objects of other libraries warn when asked for their class."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is StylesCache]


async def test_a_closed_screen_leaves_nothing_of_what_was_painted_behind() -> None:
    # Held, so that what other tests left behind neither goes meanwhile nor counts.
    others = caches()
    app = KvscopeApp(StillSession(full_view()), interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        app.poller.drain()
        kept = []
        for _ in range(3):
            await pilot.press("6", "6")
            await pilot.pause()
            kept.append(len(caches()) - len(others))
        assert kept[0] == kept[1] == kept[2] > 0


def test_a_unit_stays_until_the_number_no_longer_fits() -> None:
    steady = Steady()
    assert steady.scale("a", 990 * 2**20, "B").unit == "MiB"
    assert steady.scale("a", 1100 * 2**20, "B").unit == "MiB"
    assert steady.scale("a", 0.9 * 2**20, "B").unit != "GiB"
    assert steady.scale("b", 0.024, "s").text(0.024) == "24.0 ms"
    assert steady.scale("b", 0.0095, "s").text(0.0095) == "9.5 ms"


def test_numbers_read_as_a_person_writes_them() -> None:
    assert quantity(412.0, "1/s") == "412 /s"
    assert quantity(0.978, "ratio") == "97.8 %"
    assert with_error(0.0243, 0.0004, "s") == "24.3 ± 0.4 ms"
    assert signed(-0.621) == "−62 %"
    assert signed(0.017) == "+1.7 %"
    assert signed(-0.013, in_points=True) == "−1.3 pt"
    assert signed(11.0) == "×12"
    assert [duration(s) for s in (45, 120, 3900)] == ["45 s", "2 min", "65 min"]


def test_the_colour_scale_gets_lighter_all_the_way() -> None:
    def light(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lights = [light(ramp(step)) for step in range(RAMP_STEPS)]
    assert lights == sorted(lights)
