"""What bound each step is a share of steps, or unknown where no engine counts it."""

from __future__ import annotations

import pytest

from kvscope import signals
from kvscope.signals.load import LIMITS
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Store
from probes.sample import Sample


def counted(metric: str, a_step: float) -> Store:
    store = Store()
    for t in range(20):
        store.add([Sample("batch.steps", t * 10.0, float(t)), Sample(metric, t * 10.0 * a_step, float(t))])
    return store


@pytest.mark.parametrize(("name", "metric"), [(name, metric) for name, (metric, _) in LIMITS.items()])
def test_a_limit_is_the_share_of_the_steps_it_bound(name: str, metric: str) -> None:
    store = counted(metric, 0.4)
    found = signals.compute(name, store, store.segments[0])
    assert isinstance(found, Reading)
    assert found.value == pytest.approx(0.4)


def test_a_limit_nobody_counts_is_unknown_not_zero() -> None:
    store = counted("sched.kv_bound_steps", 0.0)
    assert isinstance(signals.compute("budget_bound_step_share", store, store.segments[0]), Missing)
