"""Screens beside the overview: each opens on its key, fits the smallest terminal, and asks for its own numbers only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.geometry import Region
from textual.pilot import Pilot

from kvscope.order import Look, Pause
from kvscope.screens import discover
from kvscope.screens.reader import Reader
from kvscope.screens.requests import requests
from kvscope.session import Session
from kvscope.signals import names
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Store
from kvscope.tui.app import KvscopeApp
from kvscope.tui.keys import digit
from kvscope.tui.panels.chart import ChartPanel
from kvscope.tui.panels.panel import Panel
from kvscope.tui.panels.table import Cells
from kvscope.tui.screens.board import Board
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.widgets.canvas import Canvas
from kvscope.view import Headline, Page, Table, Trend, View, Whole
from probes.sample import Sample
from tests.tui.still import StillSession
from tests.tui.views import UNSAID, full_view
from tests.unit.session_data import START_S, Clock, Engine, ListSource

COLUMNS = (("layer", ""), ("KV", "B"), ("read", "ratio"))
ROWS = tuple((str(n), 2.0**20 * (1 + n % 3), None if n == 1 else n / 40) for n in range(40))
FACT = Headline("kv", "resident KV", Reading(71e6, 1e5, "B"), Reading(188e6, 1e5, "B"), -0.62, -1, sure=True)


FIRST = "memory-down-throughput-flat"


def judged() -> tuple[Trend, ...]:
    """Two charts of judged signals: one checked against a bound, one against its baseline."""
    lines = list(full_view().trends.values())
    return (
        replace(lines[0], band=(None, 440.0)),
        replace(lines[1], band=(None, 160e6), ghost=lines[1].points[:40]),  # type: ignore[arg-type,index]
    )


def page_view(name: str, known: str) -> View:
    table = Table(COLUMNS, ROWS, ("a line above",), tuple(row[0] for row in ROWS))
    whole = Whole("pool", "B", (("pages", "pages", 3e6), ("stranded", "stranded", 1e6), ("free", "free", 4e6)), ("a",))
    full = Page(name, (FACT,) * 9, table, FIRST if name == "diagnosis" else "", table, (whole,), judged())
    pages = {
        "full": full,
        "empty": Page(name),
        "missing": Page(
            name,
            (Headline("kv", "resident KV", UNSAID),),
            Table(COLUMNS, UNSAID),
            wholes=(Whole("pool", "B", UNSAID),),
            charts=(Trend("a", "a", "", UNSAID),),
        ),
    }
    return full_view(page=pages[known], **({} if known == "full" else {"trends": {}, "layers": None}))


async def settle(app: KvscopeApp, pilot: Pilot[None]) -> None:
    """After keys, whose orders are given by the time a press returns: until the view they asked for is shown."""
    app.poller.drain()
    await pilot.pause()


def text_of(app: KvscopeApp) -> str:
    return "\n".join(
        canvas.render_line(y).text for canvas in app.screen.query(Canvas) for y in range(canvas.size.height)
    )


BOARDS = list(discover())[1:]


def test_every_screen_says_what_it_is_and_charts_lines_there_are() -> None:
    assert all(screen.title and screen.help for screen in discover().values())
    assert len({screen.order for screen in discover().values()}) == len(discover()) <= 10
    assert {line for screen in discover().values() for line in screen.lines} <= set(names())


@pytest.mark.parametrize("known", ["full", "empty", "missing"])
@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_screen_shows_every_view_within_the_terminal(size: tuple[int, int], known: str) -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=size) as pilot:
        for name in BOARDS:
            session.view = page_view(name, known)
            await pilot.press(digit(name))
            await settle(app, pilot)
            assert isinstance(app.screen, Board)
            assert app.screen.shows == name
            assert session.asked[-1] == Look(name)
            for panel in app.screen.query(Panel):
                if not panel.display or not panel.parent.display:
                    assert known != "full" or panel.id == "beside" or isinstance(panel, ChartPanel), panel
                    continue  # takes no room while it has nothing to say
                assert panel.region.area > 0, panel
                assert Region(0, 0, *size).contains_region(panel.region), panel
            assert "not drawn" not in text_of(app)
            assert "no source reports" not in text_of(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert isinstance(app.screen, MainScreen)
        assert session.asked[-1] == Look("overview")


async def test_a_table_sorts_by_the_chosen_column_and_keeps_the_unknown_last() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        session.view = page_view("layers", "full")
        await pilot.press(digit("layers"))
        await settle(app, pilot)
        await pilot.press("greater_than_sign", "greater_than_sign", "greater_than_sign")
        cells = app.screen.query_one(Cells)
        assert [row[0] for row in cells.rows_in_order][:2] == ["39", "38"]
        assert cells.rows_in_order[-1][0] == "1"
        await pilot.press("tilde", "down", "down")
        assert cells.rows_in_order[0][0] == "0"
        assert cells.cursor == 2


async def test_an_unknown_table_says_what_would_supply_it() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        session.view = page_view("fleet", "missing")
        await pilot.press(digit("fleet"))
        await settle(app, pilot)
        assert UNSAID.remedy in text_of(app)


@pytest.mark.parametrize("place", ["panels.chart.ChartPanel.show", "widgets.line_chart._Plot.line"])
async def test_a_panel_that_raises_says_so_and_the_rest_lives_on(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such [/colour]")

    monkeypatch.setattr(f"kvscope.tui.{place}", fail)
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(160, 48)) as pilot:
        await settle(app, pilot)
        assert "not drawn: ValueError: no such [/colour]" in text_of(app)
        assert "throughput did not move" in text_of(app)
        await pilot.resize_terminal(100, 30)
        await pilot.press("right_square_bracket", "right_square_bracket")
        await settle(app, pilot)
        assert "no such [/colour]" in text_of(app), "also where panels have no frame to say it in"
        monkeypatch.undo()
        session.view = replace(session.view, window=(0.0, 1.0))
        await settle(app, pilot)
        assert "not drawn" not in text_of(app)


def test_the_session_reads_what_the_open_screen_needs_and_nothing_else() -> None:
    clock, engine, source = Clock(START_S), Engine(), ListSource()
    session = Session(source, (), clock=clock)
    for second in range(1, 15):
        clock.now_s = START_S + second
        session.store.add(engine.step(clock.now_s))
    session.do(Look("layers"))
    view = session.poll()
    assert view.page is not None
    assert view.page.table is not None
    assert not isinstance(view.page.table.rows, Missing)
    assert [row[0] for row in view.page.table.rows] == ["0", "1", "2", "3"]
    assert view.headlines == ()
    assert view.layers is not None
    session.do(Pause())
    session.do(Look("tiers"))
    paused = session.poll()
    assert paused.paused
    assert paused.page is not None
    assert paused.page.name == "tiers"
    assert replace(session.poll(), now_s=0) == replace(paused, now_s=0)
    session.do(Look("overview"))
    assert session.poll().headlines


def test_requests_that_ended_in_the_same_step_stay_two_rows_and_the_newest_comes_first() -> None:
    store = Store()
    for t, told in ((10.0, (64, 8, 0.5)), (12.0, (512, 16, 0.7)), (12.0, (2048, 32, 0.9))):
        names = ("request.tokens_in", "request.tokens_out", "latency.ttft")
        store.add([Sample(name, float(value), t) for name, value in zip(names, told, strict=True)])
    table = requests(Reader(store))
    assert not isinstance(table.rows, Missing)
    assert [(row[0], row[1], row[2], row[5]) for row in table.rows] == [
        (12.0, 2048, 32, 0.9),
        (12.0, 512, 16, 0.7),
        (10.0, 64, 8, 0.5),
    ]
    assert table.rows[0][8] is None, "KV bytes nobody told stay unknown"
