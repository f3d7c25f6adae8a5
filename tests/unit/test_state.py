"""States told apart, vital signs in lines, promises, and how far a diagnosis reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvscope.coverage import LONGER, TRACE, coverage, lights, waits
from kvscope.diagnose import diagnose
from kvscope.errors import UsageError
from kvscope.finding import Coverage, Diagnosis, Evidence, Finding, SegmentSummary
from kvscope.playbook import load_all
from kvscope.signals.reading import Missing, Reading
from kvscope.slo import Slo, parse
from kvscope.sources.source import Description, Mark
from kvscope.state import UNNAMED, complete, state_of, unjudged
from kvscope.store import Store
from kvscope.vitals import seconds, vitals
from probes.sample import Sample

REACH = Coverage(77, 14)


def seen(coverage: Coverage = REACH, *findings: Finding, **signals: float) -> Diagnosis:
    """A diagnosis of one segment in which these signals were read."""
    read = {name: (value, 0.0, "") for name, value in signals.items()}
    return Diagnosis({}, (SegmentSummary("all", 0.0, 60.0, {}, read),), findings, coverage=coverage)


HELD_UP = {"running_requests": 4.0, "waiting_requests": 185.0}
SILENT = Finding("a", "A", "silent", "a", "because")


def finished(found: Diagnosis, slo: Slo | None = None) -> Diagnosis:
    """Completed, with a store that knows nothing more."""
    store = Store()
    store.add([Sample("sched.running", 1.0, t) for t in (0.0, 60.0)])
    return complete(found, store, slo)


def test_a_queue_longer_than_what_runs_is_a_finding_of_its_own_where_no_rule_names_a_cause() -> None:
    found = finished(seen(**HELD_UP))
    assert [one.id for one in found.findings] == [UNNAMED]
    assert found.findings[0].verdict == "likely"
    assert found.findings[0].evidence[0].value == 185.0
    assert state_of(found).kind == "unnamed"


@pytest.mark.parametrize("verdict", ["likely", "possible", "confirmed"])
def test_a_named_cause_needs_no_second_finding(verdict: str) -> None:
    named = replace(SILENT, verdict=verdict)  # type: ignore[arg-type]
    found = finished(seen(Coverage(77, 14), named, **HELD_UP))
    assert found.findings == (named,)
    assert state_of(found).kind == "found"


def test_fewer_waiting_than_running_is_no_distress_and_turned_away_requests_are() -> None:
    assert finished(seen(running_requests=8.0, waiting_requests=7.0)).findings == ()
    assert finished(seen(requests_per_s=10.0, rejections_per_s=0.05)).findings == ()
    assert finished(seen(requests_per_s=10.0, rejections_per_s=5.0)).findings[0].id == UNNAMED


def test_a_missed_promise_is_distress() -> None:
    quick = seen(ttft_p95_s=0.8, running_requests=1.0)
    assert finished(quick, parse("ttft=1s")).findings == ()
    assert "promise" in finished(quick, parse("ttft=500ms")).findings[0].title


def test_states_are_told_apart() -> None:
    assert state_of(None).kind == "reading"
    assert state_of(seen(), down="refused").kind == "down"
    assert state_of(seen(Coverage(77, 0), running_requests=3.0)).kind == "unjudged"
    assert state_of(seen(running_requests=0.0, waiting_requests=0.0)).kind == "idle"
    healthy = state_of(seen(running_requests=3.0, waiting_requests=0.0))
    assert healthy.kind == "healthy"
    assert "14 of 77 rules could be judged" in healthy.says


def test_what_could_not_be_judged_is_one_line_with_what_helps_most() -> None:
    needs = [Evidence("a", "s", ">= 1", "unknown", missing="no source", remedy=f"x; {TRACE} (how)", role="symptom")]
    waiting = [replace(SILENT, id=name, verdict="needs_data", evidence=tuple(needs)) for name in "ab"]
    unsure = replace(SILENT, id="c", verdict="needs_data", evidence=(Evidence("c", "s", "", "unknown", 1.0),))
    found = lights([waits(one) for one in (*waiting, unsure)])
    assert [(light.way, light.rules) for light in found] == [(TRACE, ("a", "b")), ("x", ("a", "b")), (LONGER, ("c",))]
    told = unjudged(seen(Coverage(77, 74, lights=found)))
    assert "3 of 77" in told
    assert "would let 2 speak" in told


def test_a_rule_near_its_bound_says_how_far_it_is() -> None:
    rule = next(one for one in load_all() if one.id == "admission-capped")
    evidence = []
    for check in rule.symptom:
        below = check.sense == ">="
        failing = check is rule.symptom[0]
        value = check.threshold * ((0.8 if below else 1.2) if failing else (2.0 if below else 0.5))
        answer = "no" if failing else "yes"
        evidence.append(Evidence(check.name, check.signal, check.says, answer, value, role="symptom"))  # type: ignore[arg-type]
    silent = Finding(rule.id, rule.title, "silent", "s", "c", tuple(evidence))
    (near,) = coverage([rule], [silent]).near
    assert near.distance == pytest.approx(0.2)
    far = replace(evidence[0], value=(evidence[0].value or 0.0) * 0.1)
    assert coverage([rule], [replace(silent, evidence=(far, *evidence[1:]))]).near == ()


def told(slo: str = "", **values: float) -> dict[str, str]:
    def read(name: str) -> Reading | Missing:
        return Reading(values[name], 0.0, "") if name in values else Missing("nobody says")

    return {line.name: line.text for line in vitals(read, parse(slo))}


def test_vital_signs_leave_out_what_nobody_tells_and_what_is_zero() -> None:
    assert told() == {}
    load = told(running_requests=4.0, waiting_requests=185.0, rejections_per_s=0.0)["load"]
    assert load == "running 4 · waiting 185"
    assert told(kv_usage_ratio=0.06, kv_capacity_tokens=24576.0)["kv"] == "6.0 % used of 24 576 tokens"


def test_a_promise_is_held_against_the_95th_percentile() -> None:
    assert "missed" in told("ttft=1s", ttft_p50_s=0.2, ttft_p95_s=1.2)["ttft"]
    assert "held" in told("ttft=1s", ttft_p50_s=0.2, ttft_p95_s=0.9)["ttft"]


def test_a_percentile_in_the_first_bucket_is_no_value() -> None:
    assert seconds(Reading(0.004, 0.006, "s", "inferred: histogram bucket 0 to 0.01")) == "≤ 10.0 ms"
    assert seconds(Reading(0.015, 0.005, "s", "inferred: histogram bucket 0.01 to 0.02")) == "15.0 ms"


@pytest.mark.parametrize("text", ["ttft", "ttft=1", "tfft=1s", "ttft=-1s", "ttft=0s"])
def test_a_promise_that_is_none_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse(text)


def against(usual: float, value: float, batches: tuple[float, float] = (8.0, 8.0)) -> list[str]:
    """Ids of what is found where a token's time went from one value to another, with this many running."""
    store = Store()
    for name, start, running, pace in (("before", 0.0, batches[0], usual), ("after", 100.0, batches[1], value)):
        store.mark(Mark(name, start))
        for k in range(11):
            level = {"sched.running": running, "sched.waiting": 0.0, "tokens.generated": running / pace * 10 * k}
            level |= {"latency.tpot.count": 10.0 * k, "latency.tpot.sum": pace * 10 * k}
            level |= {"request.tokens_in.count": 10.0 * k, "request.tokens_in.sum": 10_000.0 * k}
            store.add([Sample(metric, number, start + 9.0 * k) for metric, number in level.items()])
    about = Description("", "page", engine="vllm")
    return [one.id for one in complete(diagnose(store, (), about, "before", "after"), store).findings]


def test_a_token_that_takes_longer_for_the_same_load_is_distress_and_one_of_a_larger_batch_is_not() -> None:
    assert against(0.040, 0.060) == [UNNAMED]
    assert against(0.040, 0.043) == []
    assert against(0.060, 0.040) == []
    assert against(0.040, 0.060, (8.0, 12.0)) == []


def test_no_prefix_hit_at_all_is_said() -> None:
    read = {"prefix_hit_rate": Reading(0.0, 0.0, "ratio", "")}
    lines = vitals(lambda name: read.get(name, Missing("", "")))
    assert "prefix hits 0 %" in lines[0].text
