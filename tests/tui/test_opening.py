"""Rows and findings open what they stand for, with keys and with the mouse; the laboratory changes the engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvscope.errors import UsageError
from kvscope.order import Look, ResetKnobs, SetKnob, ToggleFault
from kvscope.tui.app import KvscopeApp, binding_ids, first_hint, run
from kvscope.tui.keys import digit
from kvscope.tui.ordering import as_json, plain
from kvscope.tui.panels.table import Cells
from kvscope.tui.screens.dialogs import ConfirmScreen, EditScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.view import Page, Table
from tests.tui.still import StillSession
from tests.tui.test_screens import page_view, settle, text_of
from tests.tui.views import full_view


def lab_view() -> Page:
    """Two knobs and two faults, one of them on."""
    knobs = Table((("knob", "text"), ("value", ""), ("was", "")), (("kernels", "block", ""),), (), ("kernels",))
    rows = (("●", "slow_selection", "a"), ("", "tier_thrash", "b"))
    faults = Table((("", "sign"), ("fault", "text"), ("cause", "text")), rows, (), ("slow_selection", "tier_thrash"))
    return Page("lab", table=knobs, beside=faults)


async def test_a_knob_is_typed_anew_and_a_fault_is_asked_for_before_it_starts() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        session.view = full_view(page=lab_view())
        await pilot.press(digit("lab"))
        await settle(app, pilot)
        app.screen.query_one("#table").focus()
        await pilot.press("enter")
        assert isinstance(app.screen, EditScreen)
        await pilot.press("ctrl+u", *"generic", "enter")
        await settle(app, pilot)
        assert session.asked[-1] == SetKnob("kernels", "generic")
        app.screen.query_one("#beside").focus()
        await pilot.press("down", "enter")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("y")
        await settle(app, pilot)
        assert isinstance(session.asked[-1], ToggleFault)
        assert session.asked[-1].fault == "tier_thrash"
        await pilot.press("u")
        await settle(app, pilot)
        assert session.asked[-1] == ResetKnobs()


async def test_enter_opens_a_request_and_escape_closes_it_before_the_screen() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        session.view = page_view("requests", "full")
        await pilot.press(digit("requests"))
        await settle(app, pilot)
        app.screen.query_one("#table").focus()
        await pilot.press("down", "enter")
        await settle(app, pilot)
        assert session.asked[-1] == Look("requests/1")
        assert session.view.page is not None
        session.view = replace(session.view, page=replace(session.view.page, about="1"))
        app.poller.drain()
        await pilot.pause()
        await pilot.press("escape")
        await settle(app, pilot)
        assert session.asked[-1] == Look("requests/")
        assert not isinstance(app.screen, MainScreen)


async def test_a_click_chooses_a_row_a_second_one_opens_it_and_a_click_on_a_heading_sorts() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        session.view = page_view("fleet", "full")
        await pilot.press(digit("fleet"))
        await settle(app, pilot)
        cells = app.screen.query_one(Cells)
        await pilot.click(cells, offset=(5, 4))
        assert cells.cursor == 2
        await pilot.click(cells, offset=(5, 1))
        assert cells.sort == 0
        await pilot.click(cells, offset=(5, 4))
        await settle(app, pilot)
        assert session.asked[-1] == Look("replica/37")
        assert isinstance(app.screen, MainScreen)


async def test_the_bar_of_screens_answers_the_mouse() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.click("#screens", offset=(13, 0))
        await settle(app, pilot)
        assert session.asked[-1] == Look("diagnosis")


async def test_another_finding_asks_for_its_charts_and_the_band_says_where_it_fires() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        session.view = page_view("diagnosis", "full")
        await pilot.press(digit("diagnosis"))
        await settle(app, pilot)
        assert "fires" in text_of(app)
        assert "began" in text_of(app)
        await pilot.press("down")
        await settle(app, pilot)
        assert session.asked[-1] == Look("diagnosis/tpot-up-tier-switching")


async def test_the_view_is_kept_as_text_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = KvscopeApp(StillSession(full_view()), interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        shown = plain(app)
        await pilot.press("w", "x")
        await pilot.pause()
    (text,), (data,) = tmp_path.glob("*.txt"), tmp_path.glob("*.json")
    assert text.read_text().splitlines()[:20] == shown.splitlines()[:20]
    assert json.loads(data.read_text())["headlines"][1]["now"]["value"] == 412.0
    assert "missing" in as_json(page_view("fleet", "missing"))


def test_the_hint_is_said_once(tmp_path: Path) -> None:
    assert "?" in first_hint(tmp_path)
    assert first_hint(tmp_path) == ""


def test_an_unknown_action_in_the_keys_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    assert {"mark", "pause", "screen.diagnosis", "time.onset"} <= set(binding_ids())
    with pytest.raises(UsageError, match="did you mean 'pause'"):
        run(StillSession(full_view()), keymap={"pausee": "p"})
