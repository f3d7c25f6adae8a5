"""What a decode step takes by itself, where prompts are computed in every stretch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from kvscope import signals
from kvscope.store import Store
from probes.sample import Sample, labels_of
from tests.synthetic import store_of

BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, math.inf)


def watched(gaps: Mapping[float, int], prompt_tokens: float, generated: float, seconds: int = 20) -> Store:
    """Return a store in which every second brings these gaps (length → how many), prompt and output tokens."""
    samples = []
    for t in range(seconds):
        level = {"tokens.prompt": prompt_tokens, "tokens.generated": generated, "prefix.hits": 0.0}
        level |= {"latency.itl.count": sum(gaps.values()), "latency.itl.sum": sum(gap * n for gap, n in gaps.items())}
        samples += [Sample(metric, value * t, float(t)) for metric, value in level.items()]
        samples += [Sample("sched.running", 4.0, float(t)), Sample("sched.waiting", 0.0, float(t))]
        for bound in BOUNDS:
            below = sum(n for gap, n in gaps.items() if gap <= bound)
            spelt = "+Inf" if math.isinf(bound) else f"{bound:g}"
            samples.append(Sample("latency.itl.bucket", float(below * t), float(t), labels_of(le=spelt)))
    return store_of(samples)


def reading(name: str, store: Store) -> float:
    return signals.compute(name, store, store.segments[-1]).value


def test_gaps_without_a_prompt_lie_together_below_the_others():
    store = watched({0.006: 150, 0.085: 30}, prompt_tokens=3000, generated=180)
    assert reading("step_pure_s", store) == pytest.approx(0.006, rel=0.25)
    assert reading("stalled_gap_share", store) > 0.5


def test_steps_that_only_vary_hide_no_prompts():
    store = watched({0.009: 100, 0.011: 100}, prompt_tokens=300, generated=200)
    assert reading("prefill_between_tokens_s", store) <= 0.001


def test_where_every_step_is_full_of_prompts_its_fixed_part_is_bounded():
    # Four run, so 80 tokens a second are 20 steps, each with 2000 prompt tokens.
    store = watched({0.055: 80}, prompt_tokens=40_000, generated=80)
    assert reading("step_pure_s", store) <= 0.055 * 512 / (512 + 2000) * 1.01


def stat_lines(*rows: tuple[float, int, float]) -> Store:
    """Return a store of a log's stat lines 10 s apart: tokens a second, running requests, share of the pool."""
    made, samples = 0.0, []
    for k, (pace, running, held) in enumerate(rows):
        made += 10 * pace
        level = {"tokens.generated": made, "sched.running": float(running), "kv.usage_ratio": held}
        samples += [Sample(metric, value, 10.0 * k) for metric, value in level.items()]
    return store_of(samples)


QUIET = [(40.0, 2, 0.20 + 0.01 * k) for k in range(4)]


def test_a_log_shows_stalls_where_running_requests_get_hardly_a_token_while_kv_grows():
    stalled = [(0.5, 2, 0.30 + 0.05 * k) for k in range(4)]
    assert reading("stalled_gap_share", stat_lines(*QUIET, *stalled)) == pytest.approx(4 / 7, abs=0.01)


def test_a_larger_batch_may_take_longer_in_proportion_and_a_hung_engine_computes_nothing():
    larger = [(30.0, 14, 0.30 + 0.05 * k) for k in range(4)]
    hung = [(0.5, 2, 0.23)] * 4
    assert reading("stalled_gap_share", stat_lines(*QUIET, *larger)) == 0.0
    assert reading("stalled_gap_share", stat_lines(*QUIET, *hung)) == 0.0
