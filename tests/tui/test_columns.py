"""A table's columns and the line of keys: what a narrow terminal leaves out, and what it never does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvscope.demo import _uncompared
from kvscope.order import MarkBaseline
from kvscope.tui.app import KvscopeApp
from kvscope.tui.finding_text import brief
from kvscope.tui.panels.table import Columns
from kvscope.tui.widgets.key_bar import KeyBar
from kvscope.view import Table
from tests.tui.findings import diagnosis
from tests.tui.still import StillSession
from tests.tui.views import full_view

TIMES = Table((("TTFT", "s"), ("KV", "B"), ("fault", "text")), ((0.145, 524288.0, "slow"), (0.0012, None, "x" * 30)))


def fitted(table: Table) -> Columns:
    columns = Columns()
    columns.fit(table)
    return columns


def test_a_column_has_one_unit_and_its_heading_says_it() -> None:
    columns = fitted(TIMES)
    assert columns.headings == ("TTFT ms", "KV KiB", "fault")
    assert [columns.written(0, value) for value in (0.145, 0.0012, None)] == ["145", "1", "?"]
    assert columns.written(1, 524288.0) == "512"


def test_words_are_cut_before_numbers_and_numbers_never() -> None:
    columns = fitted(TIMES)
    wide, narrow, tiny = (columns.edges(width) for width in (80, 35, 20))
    assert wide[-1][1] == 80
    assert narrow[2][1] - narrow[2][0] < 31
    assert narrow[0] == (1, 10)
    assert tiny[2] == (0, 0)
    assert tiny[1] != (0, 0)


def test_widths_grow_and_do_not_shrink_while_the_columns_are_the_same() -> None:
    columns = fitted(TIMES)
    before = columns.edges(60)
    columns.fit(replace(TIMES, rows=((0.145, 524288.0, "s"),)))
    assert columns.edges(60) == before


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_help_and_quit_are_on_the_line_of_keys_at_any_width(width: int) -> None:
    app = KvscopeApp(StillSession(full_view()), interval_s=60)
    async with app.run_test(size=(width, 24)) as pilot:
        for key in ("", "0", "2"):
            await pilot.press(*key)
            await pilot.pause()
            line = app.screen.query_one(KeyBar).render_line(0).text
            assert "? Help" in line
            assert "q Quit" in line
            assert ("Save" in line) == (width > 80 or (width == 80 and key != "0"))


async def test_a_click_on_a_key_presses_it() -> None:
    session = StillSession(full_view())
    app = KvscopeApp(session, interval_s=60)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        at = app.screen.query_one(KeyBar).render_line(0).text.index("Baseline")
        await pilot.click(KeyBar, offset=(at, 0))
        await pilot.pause()
        app.poller.drain()
        assert session.asked == [MarkBaseline()]


def test_of_an_unexplained_finding_the_text_says_what_is_ruled_out() -> None:
    unexplained = diagnosis().findings[2]
    assert "not known; ruled out" in brief(unexplained, 120).plain


def test_the_demos_first_act_is_compared_with_nothing() -> None:
    view = _uncompared(full_view())
    assert all(one.baseline is None and one.change is None for one in view.headlines)
    assert all(part.baseline is None for part in view.accounting)
    assert not any(span.is_baseline for span in view.segments)
    assert view.findings == (), "nothing competes with the story before act 2"
