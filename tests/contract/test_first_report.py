"""The first 24 lines of a report on real pages answer what limits the engine, how much room is left, what to change."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from kvscope import report
from kvscope.authoring import read_whole
from kvscope.diagnose import diagnose
from kvscope.finding import Diagnosis
from kvscope.playbook import load_all
from kvscope.state import complete

SHIPPED = Path(__file__).parents[2] / "samples" / "captures"
FOLDERS = [SHIPPED, *(Path(one) for one in (os.environ.get("KVSCOPE_CAPTURES"),) if one)]
PAGES = sorted({page.parent.name: page for folder in FOLDERS for page in folder.glob("*/pages.jsonl.gz")}.values())


@cache
def found_on(page: Path) -> Diagnosis:
    store, about = read_whole(page)
    return complete(diagnose(store, load_all(), about), store)


@cache
def lines_of(page: Path) -> list[str]:
    return report.render("text", found_on(page), width=80).split("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_no_line_is_cut_at_80_columns(page: Path) -> None:
    assert [line for line in lines_of(page) if len(line) > 80] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_24_lines_say_what_limits_it_and_how_much_room_is_left(page: Path) -> None:
    top = lines_of(page)[:24]
    found = found_on(page)
    assert any(line.startswith("  limit ") for line in top)
    account = found.account
    assert account is not None
    if account.levels["admission"] is not None:
        assert any("room for" in line for line in top)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_first_findings_fix_stands_within_24_lines_and_a_report_without_one_fits_them(page: Path) -> None:
    told = [one for one in found_on(page).findings if one.verdict in ("confirmed", "likely", "possible")]
    if not told:
        assert len(lines_of(page)) <= 24
    elif told[0].fix:
        lines = lines_of(page)
        begins = next(at for at, line in enumerate(lines) if line.startswith("  fix "))
        words = " ".join(line.strip().removeprefix("fix") for line in lines[begins:24])
        assert " ".join(told[0].fix[0].split()) in " ".join(words.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_queue_longer_than_what_runs_is_never_passed_over(page: Path) -> None:
    found = found_on(page)
    read = found.segments[-1].signals
    running, waiting = read.get("running_requests"), read.get("waiting_requests")
    if running and waiting and waiting[0] - waiting[1] >= max(1.0, running[0]):
        assert any(one.verdict in ("confirmed", "likely", "possible") for one in found.findings)
