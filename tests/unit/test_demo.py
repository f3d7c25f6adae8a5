"""The demo's script changes a knob only when the act before has been measured, and stops where a person takes over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from kvscope.demo import Demo
from kvscope.finding import Diagnosis, Experiment, Finding, SegmentSummary
from kvscope.order import Apply, Order
from kvscope.session import Session
from kvscope.view import View

LIKELY = Finding(
    "flat", "It fell", "likely", "slug", "because", experiment=Experiment("change it", set=(("kernels", "block"),))
)


@dataclass
class Stage:
    """A session and a control door in one: it remembers what it was asked, and plays the engine's numbers."""

    now_s: float = 0.0
    values: dict[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    asked: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False

    @property
    def store(self) -> Stage:
        return self

    def latest(self, metric: str) -> float | None:
        return self.values.get(metric)

    def poll(self) -> View:
        diagnosis = Diagnosis({}, (), self.findings)
        return View("ring", "ring", self.now_s, not self.ended, diagnosis=diagnosis, ended=self.ended)

    def diagnose_now(self) -> Diagnosis:
        segments = tuple(SegmentSummary(name, 0, 1) for name in ("warm-up", "dense", "compressed", "verified"))
        return Diagnosis({}, segments, self.findings)

    def do(self, asked: Order) -> str:
        assert isinstance(asked, Apply)
        self.asked.append((f"apply {asked.finding}", asked.name))
        return "Set kernels = block"

    def set(self, knobs: Mapping[str, str], mark: str = "") -> object:
        self.asked.append((str(dict(knobs)), mark))
        return None


def demo_on(stage: Stage) -> Demo:
    return Demo(cast(Session, stage), stage, act_s=10.0)


def play(demo: Demo, stage: Stage, seconds: float) -> None:
    until = stage.now_s + seconds
    while stage.now_s < until and not demo.done:
        demo.poll()
        stage.now_s += 0.5


WARM = {"tokens.prefilled": 3 * 8192.0, "sched.running": 8.0}


def test_nothing_is_marked_before_the_documents_are_prefilled() -> None:
    stage = Stage(values={"tokens.prefilled": 8192.0, "sched.running": 8.0})
    demo = demo_on(stage)
    play(demo, stage, 30.0)
    assert stage.asked == []
    assert "8192 of 24576" in demo.status


def test_the_acts_follow_each_other_to_a_confirmed_end() -> None:
    stage = Stage(values=WARM, findings=(LIKELY,))
    demo = demo_on(stage)
    play(demo, stage, 40.0)
    assert stage.asked == [("{}", "dense"), ("{'policy': 'combined'}", "compressed"), ("apply flat", "verified")]
    assert not demo.done
    stage.findings = (replace(LIKELY, verdict="confirmed"),)
    play(demo, stage, 15.0)
    assert demo.done
    assert "confirmed" in demo.status


def test_an_act_is_as_long_as_asked() -> None:
    stage = Stage(values=WARM)
    demo = demo_on(stage)
    play(demo, stage, 11.0)
    assert [mark for _, mark in stage.asked] == ["dense"]
    play(demo, stage, 3.0)
    assert [mark for _, mark in stage.asked] == ["dense", "compressed"]


def test_without_a_likely_finding_it_ends_and_says_so() -> None:
    stage = Stage(values=WARM, findings=(replace(LIKELY, verdict="possible"),))
    demo = demo_on(stage)
    play(demo, stage, 120.0)
    assert demo.done
    assert "No finding became likely" in demo.status


def test_a_dead_engine_ends_it() -> None:
    stage = Stage(values=WARM)
    demo = demo_on(stage)
    stage.ended = True
    demo.poll()
    assert demo.done


def test_a_person_who_applies_takes_over() -> None:
    stage = Stage(values=WARM, findings=(LIKELY,))
    demo = demo_on(stage)
    demo.do(Apply("flat"))
    play(demo, stage, 60.0)
    assert stage.asked == [("apply flat", "after")]


def test_the_result_leaves_the_warm_up_out() -> None:
    names = [segment.name for segment in demo_on(Stage()).result().segments]
    assert names == ["dense", "compressed", "verified"]
