"""The order of findings: what is new goes before what was so all along, wrong answers before slow ones."""

from __future__ import annotations

from kvscope.diagnose import diagnose
from kvscope.finding import Finding, Gain
from kvscope.playbook import load_all
from kvscope.ranking import ranked
from kvscope.sources.source import Description
from tests.synthetic import State, Stretch, store_of, stream

PLAYBOOKS = load_all()
ABOUT = Description("ring", "synthetic", "kvscope-engine")


def finding(name: str, verdict: str = "likely", *, bound: float = 2.0, **more: object) -> Finding:
    gain = Gain("decode time", None, bound)
    return Finding(name, name, verdict, f"slug_{name}", name, gain=gain, **more)  # type: ignore[arg-type]


def order(*findings: Finding) -> list[str]:
    return [one.id for one in ranked(list(findings))[0]]


def test_what_was_there_before_comes_after_what_is_new_however_large() -> None:
    assert order(finding("old", bound=9.0, persists=True), finding("new", "possible")) == ["new", "old"]


def test_what_was_there_before_still_comes_before_what_is_not_explained() -> None:
    assert order(finding("odd", "unexplained"), finding("old", persists=True)) == ["old", "odd"]


def test_a_wrong_answer_comes_before_a_slow_one() -> None:
    assert order(finding("slow", bound=5.0), finding("wrong", bound=1.0, triage="quality")) == ["wrong", "slow"]


def test_a_cause_that_costs_next_to_nothing_comes_last_of_its_kind() -> None:
    assert order(finding("a", bound=1.01, triage="kernel"), finding("b", bound=1.2)) == ["b", "a"]


def test_a_symptom_seen_in_the_segment_before_persists() -> None:
    slow = State(shares={"gather": 0.5, "linear": 0.3})
    store = store_of(stream([Stretch("first", slow), Stretch("second", slow)]))
    found = {one.id: one for one in diagnose(store, PLAYBOOKS, ABOUT).findings}
    assert found["access-bound"].persists
    alone = diagnose(store_of(stream([Stretch("first", slow)])), PLAYBOOKS, ABOUT).findings
    assert not any(one.persists for one in alone)


def test_a_symptom_that_grew_by_much_is_part_of_what_changed() -> None:
    before, same, more = (State(shares={"index": part, "gather": part}) for part in (0.17, 0.18, 0.32))
    assert judged(before, same)["access-bound"].persists
    assert not judged(before, more)["access-bound"].persists


def judged(before: State, now: State) -> dict[str, Finding]:
    store = store_of(stream([Stretch("before", before), Stretch("now", now)]))
    return {one.id: one for one in diagnose(store, PLAYBOOKS, ABOUT, include_silent=True).findings}
