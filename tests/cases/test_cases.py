"""Real trouble reports: the diagnosis is right, or abstains and names what is missing; it never says what is wrong.

The folder of reports is named by ``KVSCOPE_CASES``; the public reports lie beside this file.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from kvscope.finding import Diagnosis
from tests.cases.replay import CLAIMS, PUBLIC, Case, cases, judged, outcome

FOLDER = os.environ.get("KVSCOPE_CASES", "")
CASES = list(cases(Path(FOLDER))) if FOLDER else []
REPORTS = list(cases(PUBLIC))
here = pytest.mark.skipif(not CASES, reason="KVSCOPE_CASES names no folder of trouble reports")
found_of = cache(lambda name: judged(next(case for case in (*CASES, *REPORTS) if case.name == name)))


def found(case: Case) -> Diagnosis:
    return found_of(case.name)  # type: ignore[no-any-return]


@here
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_must_not_be_said_is_not_said(case: Case) -> None:
    everything = {one.slug for one in found(case).findings if one.verdict in CLAIMS}
    assert not everything & case.forbidden


@here
@pytest.mark.parametrize("case", [one for one in CASES if not one.confirmed], ids=lambda case: case.name)
def test_where_nobody_knows_doubt_is_admitted(case: Case) -> None:
    assert all(one.verdict != "likely" for one in found(case).findings)


@here
def test_confirmed_reports_are_answered_rightly_or_with_what_is_missing() -> None:
    outcomes = {case.name: outcome(case, found(case)) for case in CASES if case.confirmed and case.replayable}
    good = [one for one in outcomes.values() if one in ("right", "abstains")]
    answered = [one for one in outcomes.values() if one in ("right", "second", "wrong")]
    assert len(good) >= 0.8 * len(outcomes), outcomes
    assert answered.count("right") >= 0.7 * len(answered), outcomes
    assert len(answered) >= 0.4 * len(outcomes), "abstaining everywhere is no diagnosis"


def test_of_public_reports_hardly_any_is_told_a_wrong_cause() -> None:
    outcomes = {case.name: outcome(case, found(case)) for case in REPORTS}
    wrong = [name for name, word in outcomes.items() if word in ("wrong", "false alarm")]
    assert len(wrong) <= 0.06 * len(outcomes), wrong
