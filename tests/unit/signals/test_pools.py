"""Pools of the wrong size, held against what turning a replica would bring: a queue is simulated, both ways."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import pytest

from kvscope.diagnose import diagnose
from kvscope.playbook import load_all
from kvscope.playbook_schema import Playbook
from kvscope.signals import compute, replicas
from kvscope.signals.reading import Missing
from kvscope.sources.source import Description
from kvscope.store import Store
from probes.sample import Sample, labels_of

TO_PREFILL, TO_DECODE = "prefill-pool-too-small", "decode-pool-too-small"
POOL_RULES = tuple(book for book in load_all() if book.id in (TO_PREFILL, TO_DECODE))
FLEET_RULES = tuple(book for book in load_all() if book.id in ("fleet-uneven", "replica-stands-out"))
SLOTS, SECONDS, STEP_S = 8, 240, 0.05


@dataclass
class Fleet:
    """Requests are prefilled one after another, then decoded beside others; each pool takes the shortest queue."""

    prefill: int
    decode: int
    rate: float
    prefill_s: float = 0.5
    decode_s: float = 4.0
    transfer_s: float = 0.02
    seed: int = 0
    samples: list[Sample] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)

    def run(self) -> Fleet:
        """Simulate: a step takes what came, ends what is done, starts what fits; once a second everybody tells."""
        rng = random.Random(self.seed)
        names = [f"p{n}" for n in range(self.prefill)] + [f"d{n}" for n in range(self.decode)]
        queues: dict[str, list[float]] = {name: [] for name in names}
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        totals = dict.fromkeys(names, 0)
        arrival, t = rng.expovariate(self.rate), 0.0
        for step in range(int(SECONDS / STEP_S)):
            t = step * STEP_S
            while arrival <= t:
                self._queue("p", queues, runs).append(arrival)
                arrival += rng.expovariate(self.rate)
            for name in names:
                self._turn(name, t, queues, runs, totals, rng)
            if step % int(1 / STEP_S) == 0:
                self._tell(t, queues, runs, totals)
        return self

    def _queue(
        self, pool: str, queues: dict[str, list[float]], runs: dict[str, list[tuple[float, float]]]
    ) -> list[float]:
        return queues[min((one for one in queues if one[0] == pool), key=lambda one: len(queues[one]) + len(runs[one]))]

    def _turn(
        self,
        name: str,
        t: float,
        queues: dict[str, list[float]],
        runs: dict[str, list[tuple[float, float]]],
        totals: dict[str, int],
        rng: random.Random,
    ) -> None:
        prefills = name[0] == "p"
        while runs[name] and runs[name][0][0] <= t:
            _, born = heapq.heappop(runs[name])
            totals[name] += 1
            if prefills:
                self.samples.append(Sample("latency.ttft", t - born, t))
                self.samples.append(Sample("disagg.transfer_time", self.transfer_s, t))
                self._queue("d", queues, runs).append(born)
            else:
                self.e2e_s.append(t - born)
        while queues[name] and len(runs[name]) < (1 if prefills else SLOTS):
            born = queues[name].pop(0)
            mean = self.prefill_s if prefills else self.decode_s
            heapq.heappush(runs[name], (t + rng.uniform(0.6, 1.4) * mean, born))

    def _tell(
        self,
        t: float,
        queues: dict[str, list[float]],
        runs: dict[str, list[tuple[float, float]]],
        totals: dict[str, int],
    ) -> None:
        for name, done in totals.items():
            labels = labels_of(replica=name)
            tokens = done if name[0] == "p" else 120 * done
            told = {"sched.running": len(runs[name]), "sched.waiting": len(queues[name])}
            told |= {"requests.finished": done, "tokens.generated": tokens}
            told["kv.usage_ratio"] = len(runs[name]) / SLOTS if name[0] == "d" else 0.1
            self.samples += [Sample(metric, float(value), t, labels) for metric, value in told.items()]

    @property
    def store(self) -> Store:
        store = Store()
        store.add(one._replace(t=one.t + 1e9) for one in self.samples)
        return store

    def found(self, rules: Sequence[Playbook]) -> set[str]:
        told = diagnose(self.store, rules, Description("fleet", "simulated", "vllm")).findings
        return {one.id for one in told if one.verdict == "likely"}


def helps(fleet: Fleet, prefill: int) -> bool:
    """Whether the same load is a tenth faster with so many more prefill replicas, taken from decode."""
    if min(fleet.prefill + prefill, fleet.decode - prefill) < 1:
        return False
    other = Fleet(fleet.prefill + prefill, fleet.decode - prefill, fleet.rate, seed=fleet.seed).run()
    return fmean(other.e2e_s) < 0.9 * fmean(fleet.e2e_s)


@pytest.mark.parametrize("seed", range(200, 210))
def test_a_pool_is_too_small_where_turning_a_replica_helps(seed: int) -> None:
    rng = random.Random(seed)
    fleet = Fleet(rng.randint(1, 4), rng.randint(2, 5), rng.uniform(1.5, 8.0), seed=seed).run()
    found = fleet.found(POOL_RULES)
    for rule, prefill in ((TO_PREFILL, 1), (TO_DECODE, -1)):
        if rule in found:
            assert helps(fleet, prefill), (rule, fleet.prefill, fleet.decode, fleet.rate)
    assert len(found) <= 1


@pytest.mark.parametrize(
    ("prefill", "decode", "rate", "expected"),
    [(1, 4, 3.0, {TO_PREFILL}), (4, 1, 3.0, {TO_DECODE}), (3, 3, 3.0, set()), (1, 1, 4.0, set())],
)
def test_what_is_found_of_a_fleet_that_is_clearly_so(
    prefill: int, decode: int, rate: float, expected: set[str]
) -> None:
    fleet = Fleet(prefill, decode, rate, seed=1).run()
    assert fleet.found(POOL_RULES) == expected
    if expected:
        assert helps(fleet, 1 if TO_PREFILL in expected else -1)


def test_replicas_that_prefill_and_such_that_decode_are_not_held_against_each_other() -> None:
    fleet = Fleet(3, 3, 3.0, seed=2).run()
    store = fleet.store
    assert replicas.pools(store, store.segments[-1]) == {"prefill": ("p0", "p1", "p2"), "decode": ("d0", "d1", "d2")}
    assert fleet.found(FLEET_RULES) == set()
    assert replicas.outliers(store, store.segments[-1]) == []


def test_a_fleet_that_moves_no_kv_has_no_pools() -> None:
    fleet = Fleet(2, 2, 3.0, seed=3).run()
    fleet.samples = [one for one in fleet.samples if not one.metric.startswith("disagg.")]
    store = fleet.store
    assert replicas.pools(store, store.segments[-1]) == {}
    assert isinstance(compute("prefill_pool_waiting", store, store.segments[-1]), Missing)
