"""What the machine did meanwhile: quota, pressure, clocks, energy, and what they mean to rules about something else."""

from __future__ import annotations

import pytest

from kvscope import signals
from kvscope.diagnose import diagnose
from kvscope.playbook import load_all
from kvscope.signals.reading import Missing, Reading
from kvscope.sources.source import Description, Mark
from kvscope.store import Segment, Store
from probes.sample import Sample
from tests.states import FOLDER, situations
from tests.steady import Steady, stream

BOOKS = load_all()


def told(rates: dict[str, float], levels: dict[str, float]) -> Store:
    """A minute in which counters grow at ``rates`` a second and gauges stand at ``levels``."""
    store = Store()
    for t in range(61):
        store.add([Sample(name, rate * t, 1000.0 + t, ()) for name, rate in rates.items()])
        store.add([Sample(name, level, 1000.0 + t, ()) for name, level in levels.items()])
    return store


def read(name: str, store: Store) -> float:
    found = signals.compute(name, store, Segment("all", 1000.0, 1061.0))
    assert isinstance(found, Reading), found
    return found.value


def test_a_group_without_a_quota_is_never_stopped_and_without_groups_nobody_knows() -> None:
    assert read("host_throttled_share", told({"host.quota_periods": 0, "host.quota_hits": 0}, {})) == 0.0
    assert isinstance(signals.compute("host_throttled_share", Store(), Segment("all", 0, 1)), Missing)


@pytest.mark.parametrize(
    ("quota", "cores", "stopped", "most"),
    [(0.25, 2.0, 0.73, 0.73), (2.0, 16.0, 3.0, 0.875), (2.0, 16.0, 1.0, 0.5)],
    ids=["one thread", "more threads than the quota fills", "two threads"],
)
def test_time_stopped_is_bounded_by_what_the_group_did_run(
    quota: float, cores: float, stopped: float, most: float
) -> None:
    store = told({"host.quota_time": stopped}, {"host.quota": quota, "host.cores": cores})
    assert read("host_stopped_share", store) == pytest.approx(most)


def test_memory_pressure_is_the_share_of_time_in_which_a_task_waited_for_memory() -> None:
    store = Store()
    for t in range(61):
        store.add([Sample("host.pressure", 0.2 * t, 1000.0 + t, (("resource", "memory"),))])
        store.add([Sample("host.pressure", 0.9 * t, 1000.0 + t, (("resource", "cpu"),))])
    assert read("memory_pressure_share", store) == pytest.approx(0.2)
    assert read("host_starved_share", store) == pytest.approx(0.2), "a busy processor alone starves nobody"


def test_the_worst_device_counts_and_a_clock_that_a_person_set_is_not_held_down() -> None:
    store = Store()
    for t in range(20):
        for gpu, reason, value in (("0", "power", 0.0), ("1", "thermal", 1.0), ("2", "setting", 1.0)):
            flag = value * (t >= 10)
            store.add([Sample("gpu.throttled", flag, 1000.0 + t, (("gpu", gpu), ("reason", reason)))])
    assert read("device_throttled_share", store) == pytest.approx(0.5)


def test_energy_and_money_are_for_a_million_tokens() -> None:
    store = told({"tokens.generated": 500.0, "gpu.energy": 700.0}, {"config.price_per_hour": 3.6, "gpu.power": 1.0})
    assert read("joules_per_mtoken", store) == pytest.approx(1.4e6)
    assert read("money_per_mtoken", store) == pytest.approx(2.0)
    store = told({"tokens.generated": 500.0}, {"gpu.power": 700.0})
    assert read("joules_per_mtoken", store) == pytest.approx(1.4e6), "from power, where nobody counts energy"


THROTTLED = {"host.quota": "still 0.5", "host.quota_periods": 10, "host.quota_hits": 9, "host.quota_time": 0.5}
QUIET = {"host.quota_periods": 0, "host.quota_hits": 0}


def judged(rule: str, before: dict[str, object], now: dict[str, object]) -> dict[str, str]:
    """Verdicts where a rule's own symptoms stand beside what the machine did before and now."""
    segments = situations(FOLDER / f"{rule}.yaml")["likely"]
    machine = [now] if len(segments) == 1 else [before, now]
    both = [Steady(one.name, {**one.values, **more}) for one, more in zip(segments, machine, strict=True)]
    store = Store()
    for item in stream(both):
        if isinstance(item, Mark):
            store.mark(item)
        else:
            store.add([item])
    found = diagnose(store, BOOKS, Description("ring", "synthetic", "any"), include_silent=True)
    return {one.id: one.verdict for one in found.findings}


@pytest.mark.parametrize("rule", ["host-bound", "pool-fragmented"])
def test_a_throttled_host_is_a_rival_of_every_rule_and_a_finding_of_its_own(rule: str) -> None:
    assert judged(rule, QUIET, QUIET)[rule] == "likely"
    found = judged(rule, QUIET, THROTTLED)
    assert found[rule] == "possible"
    assert found["host-throttled"] in ("likely", "possible")


def test_what_held_in_both_segments_explains_no_change_between_them() -> None:
    rule = "decode-slower-same-work"
    assert judged(rule, THROTTLED, THROTTLED)[rule] == "likely"
    assert judged(rule, QUIET, THROTTLED)[rule] == "possible"
