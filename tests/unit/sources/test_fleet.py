"""Several addresses are polled at one moment, told apart by name, and a silent one is told and asked again."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from kvscope import signals
from kvscope.errors import SourceError, UsageError
from kvscope.signals import replicas
from kvscope.signals.reading import Missing, Reading
from kvscope.sources.fetch import FetchError
from kvscope.sources.fleet import FleetSource, addresses, is_fleet
from kvscope.store import Store

PAGE = (
    "vllm:num_requests_running 4\nvllm:num_requests_waiting {waiting}\nvllm:generation_tokens_total {tokens}\n"
    "vllm:time_to_first_token_seconds_sum {ttft}\nvllm:time_to_first_token_seconds_count {tokens}\n"
)


class Engines:
    """Pages by host, each poll a step further; a host may be down."""

    def __init__(self, **waiting: int) -> None:
        self.waiting = waiting
        self.down: set[str] = set()
        self.polls = dict.fromkeys(waiting, 0)
        self.now_s = 0.0

    def __call__(self, url: str, timeout_s: float) -> str:
        host = url.removeprefix("http://").partition(":")[0]
        if host in self.down:
            raise FetchError(f"{url}: connection refused")
        if not url.endswith("/metrics"):
            raise FetchError(f"{url}: no such place")
        self.polls[host] += 1
        tokens, waiting = 100 * self.polls[host], self.waiting[host]
        return PAGE.format(waiting=waiting, tokens=tokens, ttft=tokens * (0.1 + waiting))


def source_of(engines: Engines) -> FleetSource:
    clock = iter(range(1000, 2000))
    return FleetSource(
        [f"{host}:8000" for host in engines.waiting],
        wall=lambda: float(next(clock)),
        get=engines,
        clock=lambda: engines.now_s,
    )


def watched(engines: Engines, polls: int = 5) -> Store:
    store = Store()
    with closing(source_of(engines)) as source:
        for _ in range(polls):
            store.add(source.poll().samples)
    return store


def test_a_list_of_addresses_is_a_fleet_and_a_file_with_a_comma_is_not() -> None:
    assert is_fleet("a:1,b:2")
    assert is_fleet("http://a:1/metrics, http://b:2")
    assert not is_fleet("a:1")
    assert not is_fleet("runs/a,b.jsonl")
    assert addresses("a:1, b:2,") == ["a:1", "b:2"]


def test_samples_carry_their_replica_and_one_time_a_poll() -> None:
    with closing(source_of(Engines(a=0, b=3))) as source:
        poll = source.poll()
        assert source.describe().note.startswith("2 replicas")
    found = {dict(s.labels)["replica"]: s.value for s in poll.samples if s.metric == "sched.waiting"}
    assert found == {"a:8000": 0, "b:8000": 3}
    assert len({sample.t for sample in poll.samples}) == 1


def test_the_fleets_signals_are_of_all_replicas_together() -> None:
    store = watched(Engines(a=0, b=3, c=0))
    segment = store.segments[0]
    running, rate = (signals.compute(name, store, segment) for name in ("running_requests", "generation_tokens_per_s"))
    assert isinstance(running, Reading)
    assert isinstance(rate, Reading)
    assert (running.value, rate.value) == (12, 300)


def test_the_replica_that_stands_out_is_named_with_its_number_and_the_others() -> None:
    store = watched(Engines(a=0, b=3, c=0))
    segment = store.segments[0]
    (line,) = replicas.outliers(store, segment)
    assert line.startswith("replica b:8000 stands out: ")
    assert "requests waiting 3 against 0 requests, the median of 2 others" in line
    assert "time to the first token 3.1 against 0.1 s" in line
    gap = signals.compute("replica_waiting_gap", store, segment)
    assert isinstance(gap, Reading)
    assert gap.value == 3


def test_two_replicas_are_enough_to_name_one() -> None:
    store = watched(Engines(a=0, b=3))
    assert replicas.outliers(store, store.segments[0])[0].startswith("replica b:8000")


def test_equal_replicas_name_nobody_and_one_engine_has_nothing_to_compare_with() -> None:
    store = watched(Engines(a=1, b=1, c=1))
    assert replicas.outliers(store, store.segments[0]) == []
    alone = signals.compute("replica_ttft_ratio", Store(), store.segments[0])
    assert isinstance(alone, Missing)
    assert "fleet" in alone.remedy


def test_a_member_that_is_down_is_told_once_and_joins_when_it_answers() -> None:
    engines = Engines(a=0, b=0)
    engines.down.add("b")
    with closing(source_of(engines)) as source:
        assert source.describe().note.startswith("2 replicas, 1 silent")
        first, second = source.poll(), source.poll()
        assert any("b:8000" in notice and "refused" in notice for notice in first.notices)
        assert not any("b:8000" in notice for notice in second.notices)
        engines.down.clear()
        engines.now_s += 60.0
        third = source.poll()
    assert {dict(sample.labels)["replica"] for sample in third.samples} == {"a:8000", "b:8000"}


def test_a_restart_of_one_replica_does_not_cut_the_fleets_stream() -> None:
    engines = Engines(a=0, b=0)
    with closing(source_of(engines)) as source:
        source.poll()
        source.poll()
        engines.polls["b"] = 0
        poll = source.poll()
    assert poll.marks == ()
    assert any("b:8000: the engine restarted" in notice for notice in poll.notices)


def test_a_fleet_of_the_dead_is_an_error_and_so_is_too_large_a_list() -> None:
    engines = Engines(a=0, b=0)
    engines.down = {"a", "b"}
    with pytest.raises(SourceError, match="refused"):
        source_of(engines)
    with pytest.raises(UsageError, match="Prometheus"):
        FleetSource([f"h{index}:1" for index in range(1001)], get=engines)


def test_one_signal_says_how_far_the_worst_replica_is_past_the_bound_of_standing_out() -> None:
    calm, crowded = watched(Engines(a=1, b=1, c=1)), watched(Engines(a=0, b=3, c=0))
    low, high = (signals.compute("replica_outlier", store, store.segments[0]) for store in (calm, crowded))
    assert isinstance(low, Reading)
    assert isinstance(high, Reading)
    assert low.value <= 1.0 + 1e-9
    assert high.value > 1
    assert "b:8000" in high.source


def test_members_that_hang_hold_up_neither_the_others_nor_the_end() -> None:
    released = threading.Event()

    def get(url: str, timeout_s: float) -> str:
        if "//slow" in url:
            released.wait(30)
        return PAGE.format(waiting=0, tokens=1, ttft=0.1)

    targets = [f"slow{n}:8000" if n % 2 else f"quick{n}:8000" for n in range(60)]
    began = time.monotonic()
    with closing(FleetSource(targets, get=get)) as source:
        heard: set[str] = set()
        for _ in range(3):
            heard |= {dict(sample.labels)["replica"] for sample in source.poll().samples}
        assert heard == {target for target in targets if target.startswith("quick")}
        assert source.describe().note.startswith("60 replicas, 30 silent")
    took = time.monotonic() - began
    released.set()
    assert took < 10


def test_one_member_whose_words_break_the_reader_is_told_and_the_others_go_on() -> None:
    def get(url: str, timeout_s: float) -> str:
        if "//bad" in url:
            raise RuntimeError("unforeseen")
        return PAGE.format(waiting=0, tokens=1, ttft=0.1)

    with closing(FleetSource(["bad:8000", "good:8000"], get=get)) as source:
        poll = source.poll()
    assert {dict(sample.labels)["replica"] for sample in poll.samples} == {"good:8000"}
    assert any("bad:8000" in notice and "RuntimeError" in notice for notice in poll.notices)
