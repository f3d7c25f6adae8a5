"""Before and after by physics, from two pages alone: a simulated engine whose steps and pool are set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvscope.account import Change, change
from kvscope.store import Segment, Store
from tests.scheduler import Scenario, simulate

BASE = Scenario(12, (400, 500), (150, 200), pool=40_000, step_s=0.02, prompt_token_s=1e-6)


def judged(after: Scenario, tags: tuple[str, str] = ("auto", "fp8")) -> Change | None:
    store, segments, start = Store(), [], 0.0
    for name, scenario, dtype in (("before", BASE, tags[0]), ("after", after, tags[1])):
        samples = [one._replace(t=one.t + start) for one in simulate(scenario, 30, 1, warm_up_s=5.0).samples]
        store.add(samples)
        segments.append(Segment(name, samples[0].t, samples[-1].t + 1e-6, {"dtype": dtype} if dtype else {}))
        start += 100.0
    return change(store, segments[0], segments[1])


def test_half_the_bytes_and_slower_tokens_at_the_same_load_cost_more_than_they_save() -> None:
    found = judged(replace(BASE, pool=80_000, step_s=0.024))
    assert found is not None
    assert found.verdict == "form_costs"
    assert found.kv_bytes == pytest.approx(-0.5)
    assert found.measured == pytest.approx(0.2, abs=0.02)
    assert found.factor == (pytest.approx(2.4, abs=0.05), None)
    assert any("not load" in text for text in found.excluded)


def test_a_token_that_became_faster_by_less_than_the_bytes_is_as_physics_allows() -> None:
    found = judged(replace(BASE, pool=80_000, step_s=0.014))
    assert found is not None
    assert found.verdict == "as_physics"
    assert found.factor is None


def test_a_token_that_stands_still_cannot_be_told_without_model_and_device() -> None:
    found = judged(replace(BASE, pool=80_000))
    assert found is not None
    assert found.verdict == "cannot_tell"
    assert any("--config" in text for text in found.open)


def test_another_load_is_said_and_nothing_is_judged() -> None:
    found = judged(replace(BASE, pool=80_000, step_s=0.024, clients=24))
    assert found is not None
    assert found.verdict == "cannot_tell"
    assert any("the load differs" in text for text in found.open)


@pytest.mark.parametrize("tags", [("auto", "auto"), ("", "")])
def test_a_larger_pool_alone_is_no_other_form(tags: tuple[str, str]) -> None:
    assert judged(replace(BASE, pool=80_000, step_s=0.024), tags) is None
