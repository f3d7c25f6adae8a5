"""What held requests back is read from a page of a simulated scheduler whose reasons are known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kvscope import signals
from kvscope.account import account
from kvscope.signals.limits import PARTS
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import Samples
from kvscope.store import Segment, Store
from probes.sample import Sample
from tests.scheduler import Run, Scenario, simulate

Draw = Callable[[random.Random], Scenario]


def demand(draw: random.Random) -> Scenario:
    return Scenario(draw.randint(2, 24), (50, draw.choice([200, 1500])), think_s=draw.choice([0.0, 0.5]))


def cap(draw: random.Random) -> Scenario:
    most = draw.choice([1, 2, 4, 8, 16])
    return Scenario(
        most * 2 + draw.randint(1, 20), (50, draw.choice([100, 600])), cap=most, says_cap=draw.random() < 0.3
    )


def pool(draw: random.Random) -> Scenario:
    prompt, holds = draw.choice([(50, 120), (400, 800), (1500, 2000)]), draw.uniform(2.5, 9)
    return Scenario(int(holds * 3) + 2, prompt, (100, 400), pool=int(holds * (sum(prompt) / 2 + 125)))


def token_budget(draw: random.Random) -> Scenario:
    return Scenario(draw.randint(20, 60), (2000, 6000), (5, draw.choice([40, 150])), budget=draw.choice([512, 2048]))


def rejected(draw: random.Random) -> Scenario:
    return Scenario(draw.randint(20, 40), cap=draw.choice([4, 8]), most_queued=draw.choice([2, 4]))


FAMILIES: tuple[Draw, ...] = (demand, cap, pool, token_budget, rejected)


def filled(run: Run) -> tuple[Store, Segment]:
    store = Store()
    store.add(run.samples)
    return store, store.segments[-1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_the_limit_is_what_the_scheduler_met_most_of_the_time(family: Draw, seed: int) -> None:
    run = simulate(family(random.Random(seed)), 30, seed, warm_up_s=5.0)
    found = account(*filled(run))
    assert found.limit.name == run.largest()
    assert found.limit.share == pytest.approx(max(run.truth.values()) / sum(run.truth.values()), abs=0.25)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_the_parts_of_every_level_add_up_to_one(family: Draw) -> None:
    found = account(*filled(simulate(family(random.Random(5)), 15, 5, warm_up_s=2.0)))
    for level, shares in found.levels.items():
        assert shares is not None, level
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-6)
        assert min(shares.values()) >= 0
        assert found.known[level] in ("counted", "inferred", "physics")


def test_a_cap_that_is_lifted_is_no_limit_any_more_fifteen_seconds_later() -> None:
    before, after = (simulate(Scenario(24, cap=most), 15, 1, warm_up_s=2.0) for most in (4, 64))
    store = Store()
    store.add(before.samples)
    # The same counters from a fresh process: they start at zero, as after a restart with another setting.
    store.add(Sample(one.metric, one.value, one.t + 15.0, one.labels) for one in after.samples)
    start, end = store.span or (0.0, 0.0)
    assert account(store, Segment("capped", start, start + 15)).limit.name == "cap"
    assert account(store, Segment("lifted", end - 14, end + 1e-6)).limit.name == "demand"


def test_requests_that_wait_for_a_transfer_alone_are_deferred() -> None:
    store = Store()
    store.add(gauges(running=4.0, waiting=6.0, deferred=6.0))
    found = account(store, store.segments[-1])
    assert found.limit.name == "deferred"
    assert found.limit.share == pytest.approx(1.0)


def test_where_some_wait_for_capacity_the_deferred_ones_are_not_the_limit() -> None:
    store = Store()
    store.add(gauges(running=4.0, waiting=6.0, deferred=2.0))
    assert account(store, store.segments[-1]).limit.name == "cap"


def test_without_a_gauge_of_requests_the_level_is_missing_with_what_would_tell_it() -> None:
    store = Store()
    store.add([Sample("gpu.util", 0.5, 1000.0 + t, ()) for t in range(20)])
    found = account(store, store.segments[-1])
    assert found.levels == dict.fromkeys(found.levels)
    assert found.limit.name == "unknown"
    assert {one.level for one in found.missing} == set(found.levels)
    assert all(one.reason and one.remedy for one in found.missing)


def test_time_that_nobody_watched_counts_for_no_limit() -> None:
    store = Store()
    store.add(gauges(running=4.0, waiting=6.0))
    store.add(one._replace(t=one.t + 600) for one in gauges(running=4.0, waiting=0.0))
    shares = account(store, store.segments[-1]).levels["admission"]
    assert shares is not None
    assert shares["cap"] == pytest.approx(0.5, abs=0.03)
    assert shares["demand"] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_a_signal_that_rules_can_read(part: str) -> None:
    store, segment = filled(simulate(Scenario(12, cap=4), 15, 3, warm_up_s=2.0))
    reading = signals.compute(f"limit_{part}_share", store, segment)
    assert isinstance(reading, Reading)
    shares = account(store, segment).levels["admission"]
    assert shares is not None
    assert reading.value == shares[part]
    assert isinstance(signals.compute(f"limit_{part}_share", Store(), Segment("none", 0, 1)), Missing)


def gauges(running: float, waiting: float, deferred: float = 0.0) -> list[Sample]:
    said = {"sched.running": running, "sched.waiting": waiting, "sched.deferred": deferred, "kv.usage_ratio": 0.1}
    return [Sample(metric, value, 1000.0 + t, ()) for t in range(30) for metric, value in said.items()]


def replica(samples: list[Sample], name: str) -> list[Sample]:
    return [one._replace(labels=(*one.labels, ("replica", name))) for one in samples]


def test_a_fleet_is_accounted_for_as_a_whole_and_by_replica() -> None:
    store = Store()
    store.add(replica(simulate(Scenario(24, cap=4), 15, 1, warm_up_s=2.0).samples, "a:8000"))
    store.add(replica(simulate(Scenario(3), 15, 2, warm_up_s=2.0).samples, "b:8000"))
    found = account(store, store.segments[-1])
    assert {name: one.limit.name for name, one in found.replicas.items()} == {"a:8000": "cap", "b:8000": "demand"}
    for level, shares in found.levels.items():
        assert shares is not None, level
        assert sum(shares.values()) == pytest.approx(1.0)
    admitted = found.levels["admission"]
    assert admitted is not None
    assert admitted["cap"] == pytest.approx(0.5, abs=0.05)


def test_a_front_end_speaks_of_its_workers_requests_and_is_not_counted_beside_them() -> None:
    store, worker = Store(), simulate(Scenario(24, cap=4), 15, 1, warm_up_s=2.0).samples
    front = [
        one._replace(value=24.0) if one.metric == "sched.running" else one
        for one in worker
        if one.metric in ("sched.running", "tokens.generated")
    ]
    store.add(replica(worker, "worker:9000"))
    store.add(replica(front, "front:8000"))
    found = account(store, store.segments[-1])
    assert set(found.replicas) == {"worker:9000", "front:8000"}
    assert found.limit == found.replicas["worker:9000"].limit
    assert found.vitals["running_requests"] == found.replicas["worker:9000"].vitals["running_requests"]


def test_a_front_end_alone_counts_those_beyond_the_cap_as_waiting() -> None:
    store = Store()
    store.add([Sample("sched.running", 24.0, 1000.0 + t, ()) for t in range(20)])
    store.add([Sample("sched.max_running", 8.0, 1000.0, ())])
    store.add([Sample("kv.usage_ratio", 0.1, 1000.0 + t, ()) for t in range(20)])
    assert account(store, store.segments[-1]).limit.name == "cap"


@pytest.mark.parametrize(("running", "part"), [(2.0, "unknown"), (1.0, "demand")])
def test_with_every_slot_taken_and_no_word_of_a_queue_the_limit_is_not_told(running: float, part: str) -> None:
    store = Store()
    for t in range(30):
        store.add([Sample("sched.running", running, float(t)), Sample("sched.max_running", 2.0, float(t))])
    found = signals.compute(f"limit_{part}_share", store, store.segments[-1])
    assert isinstance(found, Reading)
    assert found.value == pytest.approx(1.0)


def test_requests_in_flight_alone_tell_of_no_limit() -> None:
    store = Store()
    store.add([Sample("sched.running", 3.0, float(t)) for t in range(30)])
    assert account(store, store.segments[-1]).limit.name == "unknown"


def test_what_the_next_segment_begins_with_is_no_setting_of_the_one_before() -> None:
    store = Store()
    for start, capacity in ((1000.0, 4096.0), (1020.0, 8192.0)):
        store.add([Sample("kv.capacity_tokens", capacity, start, ())])
    assert Samples(store, Segment("before", 1000.0, 1020.0)).setting("kv.capacity_tokens") == 4096.0
    assert Samples(store, Segment("after", 1020.0, 1040.0)).setting("kv.capacity_tokens") == 8192.0


def slots(used: float, size: float, running: float = 8.0) -> list[Sample]:
    """Eight slots of llama.cpp, each told as large as ``size``, holding ``used`` tokens together; nobody waits."""
    said = {"sched.running": running, "sched.waiting": 0.0, "kv.used_tokens": used}
    found = [Sample(metric, value, 1000.0 + t, ()) for t in range(30) for metric, value in said.items()]
    found += [Sample("sched.max_running", 8.0, 1000.0, ()), Sample("kv.capacity_tokens", 8 * size, 1000.0, ())]
    return [*found, Sample("engine.info", 1.0, 1000.0, (("engine", "llama.cpp"),))]


@pytest.mark.parametrize(
    ("used", "unified", "limit"),
    [
        (2000.0, None, "pool"),
        (2000.0, 0.0, "demand"),
        (900.0, 1.0, "demand"),
        (2000.0, 1.0, "pool"),
        (9000.0, None, "demand"),
    ],
)
def test_slots_that_share_a_full_pool_are_starved_though_nobody_waits(
    used: float, unified: float | None, limit: str
) -> None:
    store = Store()
    store.add(slots(used, 2048.0))
    if unified is not None:
        store.add([Sample("config.kv_unified", unified, 1000.0, ())])
    assert account(store, Segment("all", 1000.0, 1030.0)).limit.name == limit


@pytest.mark.parametrize(("running", "limit"), [(8.0, "cap"), (3.0, "deferred")])
def test_who_waits_while_a_slot_is_free_waits_for_a_slot_of_its_own(running: float, limit: str) -> None:
    store = Store()
    found = slots(400.0, 2048.0, running)
    store.add(one._replace(value=4.0) if one.metric == "sched.waiting" else one for one in found)
    assert account(store, Segment("all", 1000.0, 1030.0)).limit.name == limit


def test_an_engine_that_says_its_pool_is_full_is_limited_by_it() -> None:
    store = Store()
    store.add(gauges(running=4.0, waiting=0.0))
    store.add([Sample("events.kv_full", float(t), 1000.0 + t, ()) for t in range(30)])
    assert account(store, Segment("all", 1000.0, 1030.0)).limit.name == "pool"


@pytest.mark.parametrize("seed", range(3))
def test_pauses_between_requests_that_no_sample_caught_are_the_clients_own(seed: int) -> None:
    counted = {"tokens.generated": 8.0, "requests.finished": 1.0, "latency.itl.sum": 0.05, "latency.itl.count": 7.0}
    samples = []
    for second in range(30):
        at = 1000.0 + second
        samples += [Sample("sched.running", float(second in (12, 14 + seed)), at), Sample("sched.waiting", 0.0, at)]
        samples += [Sample(name, each * second, at) for name, each in counted.items()]
    store = Store()
    store.add(samples)
    found = signals.compute("waits_for_clients_share", store, store.segments[-1])
    assert isinstance(found, Reading)
    assert found.value > 0.8
