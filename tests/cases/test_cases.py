"""Real trouble reports: the diagnosis is right, or abstains and names what is missing; it never says what is wrong.

The folder of reports is named by ``KVSCOPE_CASES``; without it there is nothing to read.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope.diagnose import diagnose
from kvscope.errors import SourceError
from kvscope.finding import Diagnosis
from kvscope.playbook import load_all
from tests.cases.replay import SYNONYMS, store_of

FOLDER = os.environ.get("KVSCOPE_CASES", "")
CASES = sorted(Path(FOLDER).glob("*.yaml")) if FOLDER else []
PLAYBOOKS = load_all()
CLAIMS = ("confirmed", "likely", "possible")
pytestmark = pytest.mark.skipif(not CASES, reason="KVSCOPE_CASES names no folder of trouble reports")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@cache
def judged(path: Path) -> Diagnosis:
    try:
        store, source = store_of(path)
    except SourceError:
        return Diagnosis({}, (), ())
    return diagnose(store, PLAYBOOKS, source.describe())


def claims(path: Path) -> list[str]:
    """Slugs that are claimed, strongest first; those another finding explains are not claims of their own."""
    return [one.slug for one in judged(path).findings if one.verdict in CLAIMS and not one.explained_by]


def outcome(path: Path) -> str:
    """``right``, ``wrong``, ``abstains`` (naming what is missing) or ``mute``."""
    said, case = claims(path), read(path)
    if said:
        return "right" if said[0] == case["expected_diagnosis"] else "wrong"
    missing = {one.signal for one in judged(path).unknown}
    rules = [rule for rule in PLAYBOOKS if rule.cause.slug == case["expected_diagnosis"]]
    named = any(missing & set(rule.signals()) for rule in rules) if rules else bool(missing)
    return "abstains" if named else "mute"


def forbidden(case: dict[str, Any]) -> set[str]:
    return {slug for name in case["must_not_say"] for slug in (name, *SYNONYMS.get(name, ()))}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_must_not_be_said_is_not_said(path: Path) -> None:
    everything = {one.slug for one in judged(path).findings if one.verdict in CLAIMS}
    assert not everything & forbidden(read(path))


@pytest.mark.parametrize("path", [one for one in CASES if not read(one)["confirmed"]], ids=lambda path: path.stem)
def test_where_nobody_knows_doubt_is_admitted(path: Path) -> None:
    assert all(one.verdict != "likely" for one in judged(path).findings)


def test_confirmed_reports_are_answered_rightly_or_with_what_is_missing() -> None:
    known = [path for path in CASES if read(path)["confirmed"] and read(path)["replayable"] in ("full", "partial")]
    outcomes = {path.stem: outcome(path) for path in known}
    answered = [one for one in outcomes.values() if one in ("right", "wrong")]
    good = [one for one in outcomes.values() if one in ("right", "abstains")]
    assert len(good) >= 0.9 * len(outcomes), outcomes
    assert answered.count("right") >= 0.7 * len(answered), outcomes
    assert len(answered) >= 0.4 * len(outcomes), "abstaining everywhere is no diagnosis"
