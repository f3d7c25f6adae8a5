"""What the session computes for screens: the judged signals' charts, moments in the past, the laboratory, wholes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kvscope.checks import Bound, Check
from kvscope.errors import UsageError
from kvscope.order import Look, MarkBaseline, Overlay, Scrub
from kvscope.screens.diagnosis import band
from kvscope.screens.reader import Reader
from kvscope.screens.requests import request
from kvscope.session import Session
from kvscope.session.lab import Lab
from kvscope.signals.reading import Missing
from kvscope.store import Store
from probes.sample import Sample
from tests.unit.session_data import START_S, Clock, Engine, ListSource


def watched(seconds: int) -> tuple[Session, Clock]:
    """A session that has seen so many seconds of an engine."""
    clock, engine, source = Clock(START_S), Engine(), ListSource()
    session = Session(source, (), clock=clock)
    for second in range(1, seconds + 1):
        clock.now_s = START_S + second
        session.store.add(engine.step(clock.now_s))
    return session, clock


@pytest.mark.parametrize(
    ("check", "baseline", "expected"),
    [
        (Check("a", "s", "is", ">=", 0.3), None, (0.3, None)),
        (Check("a", "s", "is", "<=", 0.3), None, (None, 0.3)),
        (Check("a", "s", "up", bound=Bound(0.1)), 200.0, (220.0, None)),
        (Check("a", "s", "down", bound=Bound(0.05, points=True)), 0.5, (None, 0.45)),
        (Check("a", "s", "flat", bound=Bound(0.1)), 100.0, (90.0, 110.0)),
        (Check("a", "s", "not_up", bound=Bound(0.1)), 100.0, (None, pytest.approx(110.0))),
        (Check("a", "s", "up", bound=Bound(0.1)), None, None),
    ],
)
def test_the_band_is_where_the_check_says_yes(check: Check, baseline: float | None, expected: object) -> None:
    assert band(check, baseline) == pytest.approx(expected) if expected else band(check, baseline) is None


def test_going_back_shows_the_moment_and_going_past_the_end_lives_on() -> None:
    session, _ = watched(60)
    newest = session.poll().now_s
    session.do(Scrub(-2))
    past = session.poll()
    assert past.past
    assert past.paused
    assert past.now_s == pytest.approx(newest - 20)
    assert past.window[1] == pytest.approx(past.now_s, abs=4)
    session.do(Scrub(3))
    assert not session.poll().paused


def test_the_baseline_lies_under_the_current_segment() -> None:
    session, clock = watched(30)
    session.poll()
    session.do(MarkBaseline())
    engine = Engine()
    for second in range(31, 50):
        clock.now_s = START_S + second
        session.store.add(engine.step(clock.now_s))
    session.do(Overlay())
    ghost = session.poll().trends["kv_resident_bytes"].ghost
    assert ghost
    assert ghost[0][0] >= START_S + 29


def test_shares_of_decode_are_told_where_an_engine_counts_steps_and_prefill_only() -> None:
    session, clock = watched(0)
    for second in range(1, 20):
        t = START_S + second
        told = {
            "time.step": 1.0 * second,
            "time.prefill": 0.5 * second,
            "time.host": 0.1 * second,
            "batch.steps": second,
        }
        session.store.add([Sample(name, float(value), t) for name, value in told.items()])
    clock.now_s = START_S + 19
    session.do(Look("host"))
    points = session.poll().trends["host_share"].points
    assert not isinstance(points, Missing)
    assert points[-1][1] == pytest.approx(0.2)


class Door:
    """A controller with two knobs."""

    def __init__(self) -> None:
        self.knobs = {"kernels": "block", "load.clients": "4"}

    def set(self, knobs: Mapping[str, str], mark: str = "") -> dict[str, str]:
        self.knobs |= knobs
        return dict(self.knobs)


def test_the_laboratory_remembers_what_was_and_puts_it_back() -> None:
    door = Door()
    lab = Lab(door, clock=lambda: 0.0)
    assert [row[:2] for row in lab.knobs().rows] == [("kernels", "block"), ("load.clients", "4")]  # type: ignore[union-attr]
    lab.change({"kernels": "generic"})
    assert lab.knobs().rows[0] == ("kernels", "generic", "block")  # type: ignore[index]
    assert "kernels = block" in lab.reset()
    assert door.knobs["kernels"] == "block"


def test_a_fault_on_top_of_another_gives_back_what_was_before_both() -> None:
    door = Door()
    door.knobs |= {"policy": "full", "hot_share": "0.3", "max_running": "7"}
    before = dict(door.knobs)
    lab = Lab(door, clock=lambda: 0.0)
    lab.toggle("running_cap")
    capped = door.knobs["max_running"]
    lab.toggle("slow_selection")
    assert len({"7", capped, door.knobs["max_running"]}) == 3, "both faults set this knob, each to a value of its own"
    lab.toggle("slow_selection")
    assert {name: door.knobs[name] for name in before} == before


def test_without_a_door_the_laboratory_says_what_has_one() -> None:
    lab = Lab(None)
    assert isinstance(lab.knobs().rows, Missing)
    with pytest.raises(UsageError, match="built-in engine"):
        lab.change({"kernels": "generic"})


def test_a_request_is_its_queue_prefill_and_decode() -> None:
    store = Store()
    told = {"request.tokens_in": 64, "request.tokens_out": 8, "sched.queue_time": 0.5, "latency.prefill_time": 0.2}
    store.add([Sample(name, float(value), 10.0) for name, value in {**told, "latency.e2e": 2.0}.items()])
    reader = Reader(store)
    reader.end_s, reader.about = 11.0, "10.0:0"
    (whole,) = request(reader)
    assert whole.parts == (("queue", "queue", 0.5), ("prefill", "prefill", 0.2), ("decode", "decode", 1.3))
    assert any("cached tokens" in line for line in whole.told)
    reader.about = "9.0:0"
    assert isinstance(request(reader)[0].parts, Missing)
