"""Keys: each does what the footer says, and changes nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from kvscope.order import Apply, Diagnose, MarkBaseline, NextBaseline, Order, Overlay, Pause, Record, Scrub, Seek, Zoom
from kvscope.tui.app import KvscopeApp
from kvscope.tui.keys import KEYS, idle, screen_keys
from kvscope.tui.screens.dialogs import ConfirmScreen
from kvscope.tui.screens.finding import FindingScreen
from kvscope.tui.screens.help import HelpScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.view import View
from tests.tui.still import StillSession
from tests.tui.views import full_view


@asynccontextmanager
async def shown(
    view: View | None = None, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[KvscopeApp, Pilot[None]]]:
    """The dashboard on a session that stands still, its first view on screen."""
    app = KvscopeApp(StillSession(view or full_view()), interval_s=60)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        yield app, pilot


async def settle(app: KvscopeApp, pilot: Pilot[None]) -> None:
    """Until the polling thread has nothing left to do and its messages have arrived."""
    app.poller.drain()
    await pilot.pause()


def asked(app: KvscopeApp) -> list[Order]:
    session = app.session
    assert isinstance(session, StillSession)
    return session.asked


def main(app: KvscopeApp) -> MainScreen:
    return next(screen for screen in app.screen_stack if isinstance(screen, MainScreen))


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("b", MarkBaseline()),
        ("c", NextBaseline()),
        ("d", Diagnose()),
        ("r", Record()),
        ("+", Zoom(-1)),
        ("minus", Zoom(1)),
        (",", Scrub(-1)),
        (".", Scrub(1)),
        ("n", Seek()),
        ("v", Overlay()),
    ],
)
async def test_a_key_becomes_one_order_to_the_session(key: str, order: Order) -> None:
    async with shown() as (app, pilot):
        await pilot.press(key)
        await settle(app, pilot)
        assert asked(app) == [order]


async def test_where_it_began_is_shown_in_the_middle() -> None:
    async with shown() as (app, pilot):
        await pilot.press("o")
        await settle(app, pilot)
        (order,) = asked(app)
        assert isinstance(order, Seek)
        assert order.centre
        assert order.time_s == pytest.approx(1699999935, abs=1)


async def test_a_segment_gets_the_name_that_is_typed() -> None:
    async with shown() as (app, pilot):
        await pilot.press("m", "ctrl+u", *"fp8", "enter")
        await settle(app, pilot)
        assert asked(app) == [MarkBaseline("fp8")]


def test_no_two_keys_differ_by_case_alone() -> None:
    keys = [one for key in (*KEYS, *screen_keys()) for one in key.keys.split(",")]
    assert len({key.lower() for key in keys}) == len(keys)


async def test_space_pauses_and_the_first_line_says_so() -> None:
    async with shown() as (app, pilot):
        await pilot.press("space")
        await settle(app, pilot)
        assert asked(app) == [Pause()]
        assert "paused" in text_of(app, "target")
        await pilot.press("space")
        await settle(app, pilot)
        assert asked(app) == [Pause(), Pause()]
        assert "live" in text_of(app, "target")


async def test_apply_asks_first_and_no_is_no() -> None:
    async with shown() as (app, pilot):
        await pilot.press("a")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("enter")
        await settle(app, pilot)
        assert asked(app) == []
        await pilot.press("a", "y")
        await settle(app, pilot)
        assert asked(app) == [Apply("memory-down-throughput-flat")]


async def test_apply_on_an_engine_that_is_not_ours_only_tells_what_to_do() -> None:
    async with shown(replace(full_view(), can_apply=False)) as (app, pilot):
        await pilot.press("a")
        await settle(app, pilot)
        assert not isinstance(app.screen, ConfirmScreen)
        assert asked(app) == []


async def test_enter_opens_the_chosen_finding_and_escape_goes_back() -> None:
    async with shown() as (app, pilot):
        await pilot.press("down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, FindingScreen)
        assert app.screen.finding.id == "tpot-up-tier-switching"
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_help_lists_every_key_of_the_footer() -> None:
    async with shown(size=(100, 60)) as (app, pilot):
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        told = app.screen.keys().plain
        assert "sort by another column" not in app.screen.signs().plain  # no table on the overview
        for word in ("baseline", "Pause", "Diagnose", "Apply", "Record", "Save", "Help", "Quit"):
            assert word in told
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_q_quits() -> None:
    async with shown() as (app, pilot):
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running


async def test_f_shows_one_part_alone_and_escape_brings_all_back() -> None:
    async with shown(size=(160, 48)) as (app, pilot):
        app.screen.query_one("#layers").focus()
        await pilot.press("f")
        assert main(app).solo == "layers"
        assert not app.screen.query_one("#chart-0").display
        await pilot.press("escape")
        assert main(app).solo == ""
        assert app.screen.query_one("#chart-0").display


async def test_brackets_turn_through_the_parts_of_a_narrow_screen() -> None:
    async with shown() as (app, pilot):
        await pilot.press("right_square_bracket")
        assert main(app).solo == "chart-0"
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert main(app).solo == "parts"


async def test_arrows_read_all_charts_at_one_moment() -> None:
    async with shown(size=(160, 48)) as (app, pilot):
        app.screen.query_one("#chart-0").focus()
        await pilot.press("left", "left")
        await pilot.pause()
        at = main(app).cursor_s
        view = main(app).view
        assert view is not None
        assert at == pytest.approx(view.window[1] - 2 * (view.window[1] - view.window[0]) / 120)
        await pilot.press("escape")
        assert main(app).cursor_s is None


async def test_the_layer_map_tells_the_value_under_the_cursor() -> None:
    async with shown() as (app, pilot):
        await pilot.press("right_square_bracket", "right_square_bracket", "right_square_bracket")
        assert main(app).solo == "layers"
        await pilot.press("left", "down", "down")
        await pilot.pause()
        assert "layer" in text_of(app, "layers")
        assert "MiB" in text_of(app, "layers")


async def test_a_terminal_too_small_gets_one_clear_line_and_comes_back() -> None:
    async with shown(size=(50, 12)) as (app, pilot):
        assert app.screen.query_one("#too-small").display
        assert not app.screen.query_one("#dashboard").display
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.screen.query_one("#dashboard").display
        assert "built-in engine" in text_of(app, "target")


async def test_a_picture_is_saved_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with shown() as (_, pilot):
        await pilot.press("s")
        await pilot.pause()
    (saved,) = tmp_path.glob("kvscope-*.svg")
    assert "KV" in saved.read_text()


async def test_keys_can_be_given_other_names() -> None:
    app = KvscopeApp(StillSession(full_view()), interval_s=60, keymap={"mark": "m"})
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("b")
        await pilot.press("m")
        await settle(app, pilot)
        assert asked(app) == [MarkBaseline()]


def text_of(app: KvscopeApp, panel: str) -> str:
    """Everything a panel's canvases show."""
    from kvscope.tui.widgets.canvas import Canvas

    canvases = app.screen.query_one(f"#{panel}").query(Canvas)
    return "\n".join(canvas.render_line(y).text for canvas in canvases for y in range(canvas.size.height))


def test_keys_that_would_do_nothing_are_not_offered() -> None:
    engine = replace(full_view(4), kind="vllm", target="http://localhost:8000", can_apply=False)
    assert "profile" not in idle(engine)
    assert "apply" in idle(engine)
    ended = replace(engine, ended=True, segments=engine.segments[-1:])
    assert {"mark", "record", "diagnose", "profile", "baseline", "time.overlay"} <= idle(ended)
    assert "profile" in idle(replace(engine, kind="ring"))


def test_no_two_keys_differ_by_case_only_but_g_for_both_ends_of_a_list() -> None:
    letters = [key for one in KEYS for key in one.keys.split(",") if len(key) == 1]
    assert len({letter.lower() for letter in letters}) == len(letters)
    assert all(one.keys.isdigit() for one in screen_keys())
