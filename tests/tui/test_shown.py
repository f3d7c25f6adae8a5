"""What the dashboard says: verdict first, unknowns with their remedy, every number of a finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvscope.finding import Diagnosis
from kvscope.signals import find
from kvscope.signals.reading import Missing, Reading
from kvscope.state import Kind, State
from kvscope.tui.app import KvscopeApp
from kvscope.tui.finding_text import full, one_line
from kvscope.tui.ordering import plain
from kvscope.tui.panels.headlines import change_of
from kvscope.tui.panels.panel import Panel
from kvscope.tui.panels.target import state_of
from kvscope.tui.widgets.canvas import Canvas
from kvscope.view import Headline, Share, Trial, View
from tests.tui.findings import flagship
from tests.tui.still import StillSession
from tests.tui.views import UNSAID, full_view, missing_view


async def text_on(view: View, panel: str, size: tuple[int, int] = (160, 48)) -> str:
    """Everything the canvases of a panel show."""
    app = KvscopeApp(StillSession(view), interval_s=60)
    async with app.run_test(size=size) as pilot:
        app.poller.drain()
        await pilot.pause()
        canvases = app.screen.query_one(f"#{panel}", Panel).query(Canvas)
        return "\n".join(canvas.render_line(y).text for canvas in canvases for y in range(canvas.size.height))


async def test_the_first_line_names_the_finding_and_the_second_what_the_session_is_doing() -> None:
    trial = Trial("memory-down-throughput-flat", "kernels = block", 8, 20)
    what, now = (await text_on(full_view(trial=trial), "state", (120, 36))).splitlines()
    assert "LIKELY" in what
    assert "throughput did not move" in what
    assert "kernels = block: measuring, 8 of 20 windows" in now
    assert "connection refused" in await text_on(full_view(status="connection refused"), "state")


async def test_a_narrow_screen_says_why_what_to_fix_and_what_next_without_scrolling() -> None:
    app = KvscopeApp(StillSession(full_view()), interval_s=60)
    async with app.run_test(size=(80, 24)) as pilot:
        app.poller.drain()
        await pilot.pause()
        shown = plain(app)
    for part in ("why ", "fix ", "seen "):
        assert part in shown


@pytest.mark.parametrize("width", [60, 80, 160])
async def test_the_name_of_a_tile_is_whole_or_the_tile_is_left_out(width: int) -> None:
    named = tuple(replace(one, label=find(one.name).label) for one in full_view().headlines)
    labels = [one.label for one in named]
    line = (await text_on(full_view(headlines=named), "headlines", (width, 48))).splitlines()[0]
    assert "…" not in line
    left = line
    for label in sorted(labels, key=len, reverse=True):
        left = left.replace(label, "", 1)
    assert left.strip() == ""
    if width >= 80:
        assert all(label in line for label in labels)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 48)])
async def test_no_part_of_the_overview_shows_what_nobody_tells(size: tuple[int, int]) -> None:
    app = KvscopeApp(StillSession(missing_view()), interval_s=60)
    async with app.run_test(size=size) as pilot:
        app.poller.drain()
        await pilot.pause()
        assert "Unknown" not in plain(app)
        assert UNSAID.reason not in plain(app)


async def test_an_engine_that_knows_its_requests_but_not_its_steps_gets_the_request_s_time() -> None:
    path = (Share("queue", "queue", 0.5), Share("prefill", "prefill", 0.2), Share("decode", "decode", 0.3))
    whole = Headline("request_time", "One request", Reading(4.0, 0.1, "s"))
    text = await text_on(replace(missing_view(), request_path=path, request_time=whole), "accounting")
    assert "queue 50" in text
    assert "4.00 s" in text


async def test_a_headline_shows_value_error_baseline_and_change() -> None:
    text = await text_on(full_view(), "headlines")
    for part in ("71.3", "± 0.4", "MiB", "was 188.0", "▼ −62 % ✓", "▲ +10 % ✗", "≈ +1.7 %"):
        assert part in text


def test_good_and_bad_are_told_by_a_sign_too() -> None:
    down = Headline("a", "a", Reading(1, 0, "s"), Reading(2, 0, "s"), -0.5, better=-1, sure=True)
    assert change_of(down)[0].endswith("✓")
    assert change_of(replace(down, better=1))[0].endswith("✗")
    assert change_of(replace(down, sure=False))[0].startswith("≈")
    assert change_of(replace(down, change=None, baseline=Missing("x")))[0] == "no baseline"


def test_the_state_names_pause_end_silence_and_death() -> None:
    view = full_view()
    assert "live" in state_of(view)[0]
    assert "paused" in state_of(replace(view, paused=True))[0]
    assert "end of recording" in state_of(replace(view, ended=True, kind="recording"))[0]
    assert "ended" in state_of(replace(view, ended=True, kind="ring"))[0]
    assert "not answering" in state_of(replace(view, alive=False))[0]
    assert "silent 12 s" in state_of(replace(view, stale_s=12.0))[0]


@pytest.mark.parametrize(
    ("kind", "sign"), [("down", "✗"), ("idle", "○"), ("unnamed", "▲"), ("unjudged", "?"), ("healthy", "✓")]
)
async def test_every_state_has_its_own_sign_and_a_tick_means_judged(kind: Kind, sign: str) -> None:
    view = full_view(state=State(kind, "what it says"), diagnosis=Diagnosis({}, (), ()))
    first = (await text_on(view, "state")).splitlines()[0]
    assert first.startswith(f" {sign}")
    assert "what it says" in first
    assert ("✓" in first) == (kind == "healthy")


@pytest.mark.parametrize("width", [40, 56, 76, 110])
def test_a_finding_tells_everything_it_carries_and_fits_its_width(width: int) -> None:
    text = full(flagship(), width, can_apply=True).plain
    assert max(len(line) for line in text.splitlines()) <= width
    joined = " ".join(text.split())
    for part in (
        "71.3 ± 0.4 MiB",
        "−62 %",
        "excluded",
        "unmeasured",
        "open",
        "nvidia-ml-py",
        "at most ×2.40",
        "hold policy",
    ):
        assert part in joined
    assert "kernels = block" in joined
    assert len(one_line(flagship(), width).plain) <= width
