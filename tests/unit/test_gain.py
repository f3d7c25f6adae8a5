"""Gains: what Amdahl allows, and what may be expected of it."""

from __future__ import annotations

from typing import Any

import pytest

from kvscope.finding import Gain
from kvscope.gain import estimate
from kvscope.judge import Pair
from kvscope.playbook_schema import GainKind, GainRule
from tests.synthetic import State, Stretch, store_of, stream


def gain(kind: GainKind, reads: str, now: State, before: State | None = None, **more: Any) -> Gain | None:
    stretches = [Stretch("before", before)] if before else []
    store = store_of(stream([*stretches, Stretch("now", now)], noise=0.0))
    pair = Pair(store, store.segments[-1], store.segments[0] if before else None)
    return estimate(GainRule(kind, reads, "decode time", **more), pair)


def test_a_share_of_sixty_percent_is_worth_two_and_a_half_at_most() -> None:
    found = gain("remove_share", "access_share", State(shares={"index": 0.2, "gather": 0.4}))
    assert found is not None
    assert found.bound == pytest.approx(2.5)
    assert found.expected is None
    assert found.basis == "measured"


def test_less_is_expected_where_the_baseline_paid_too_or_a_part_stays() -> None:
    slow = State(shares={"index": 0.2, "gather": 0.4})
    paid = gain("remove_share", "access_share", slow, before=State(shares={"index": 0.2}))
    assert paid is not None
    assert paid.expected == pytest.approx(0.8 * 2.5)
    kept = gain("remove_share", "access_share", slow, before=State(), remaining=0.5)
    assert kept is not None
    assert kept.expected == pytest.approx(1 / (1 - 0.3))


def test_what_stays_is_a_part_of_one_phase_where_the_others_vanish() -> None:
    slow = State(shares={"index": 0.2, "gather": 0.4})
    found = gain("remove_share", "access_share", slow, remaining_of="index_share", remaining=0.5)
    assert found is not None
    assert found.expected == pytest.approx(1 / (1 - 0.6 + 0.1))
    assert found.bound == pytest.approx(2.5)


def test_what_the_experiment_replaces_too_is_in_the_bound_and_not_expected() -> None:
    slow = State(shares={"index": 0.2, "gather": 0.4, "attend": 0.2})
    found = gain(
        "remove_share", "access_share", slow, remaining_of="index_share", remaining=0.5, also_replaces="attend_share"
    )
    assert found is not None
    assert found.expected == pytest.approx(2.0)
    assert found.bound == pytest.approx(5.0)


def test_what_is_done_in_vain_goes_and_the_rest_stays() -> None:
    # A ratio that the stream has stands for the share of moves that come back.
    found = gain("remove_share", "access_share", State(shares={"gather": 0.5}, hit=0.8), wasted_share="sparse_hit_rate")
    assert found is not None
    assert found.expected == pytest.approx(1 / (1 - 0.5 * 0.8))


def test_nothing_is_expected_where_what_goes_was_not_measured() -> None:
    found = gain("remove_share", "access_share", State(shares={"gather": 0.5}), wasted_share="repromoted_share")
    assert found is not None
    assert found.expected is None
    assert found.bound == pytest.approx(2.0)


def test_no_more_requests_are_expected_to_fit_than_there_are() -> None:
    found = gain("fit_more", "memory_estimate_coefficient", State(token_assumed=6000, token_measured=2000, waiting=4))
    assert found is not None
    assert found.bound == pytest.approx(3.0)
    assert found.expected == pytest.approx(1.5)


def test_no_more_requests_fit_than_there_is_pool_for() -> None:
    crowd = State(token_assumed=6000, token_measured=2000, waiting=40, shares={"attend": 0.8})
    found = gain("fit_more", "memory_estimate_coefficient", crowd, pool_usage="attend_share")
    assert found is not None
    assert found.bound == pytest.approx(1.25)
    assert found.expected == pytest.approx(1.25)


def test_a_larger_batch_pays_only_for_what_a_step_does_once() -> None:
    found = gain("grow_batch", "step_headroom_share", State(shares={"linear": 0.5, "attend": 0.5}, waiting=8))
    assert found is not None
    assert found.bound == pytest.approx(2.0)
    assert found.expected == pytest.approx(2 / (0.5 + 2 * 0.5))


def test_a_batch_grows_by_no_more_than_the_experiment_lets_it() -> None:
    waiting = State(shares={"linear": 0.5, "attend": 0.5}, waiting=24)
    found = gain("grow_batch", "step_headroom_share", waiting, growth_limit=2.0)
    assert found is not None
    assert found.expected == pytest.approx(2 / (0.5 + 2 * 0.5))
    assert found.bound == pytest.approx(2.0)


def test_those_that_wait_yield_no_more_than_as_many_times_more() -> None:
    found = gain("run_waiting", "demand_factor", State(shares={"linear": 0.5, "attend": 0.5}, waiting=8))
    assert found is not None
    assert found.bound == pytest.approx(2.0)
    assert found.expected == pytest.approx(2 / (0.5 + 2 * 0.5))


def test_what_room_brings_is_not_told_where_nobody_waits() -> None:
    found = gain("run_waiting", "demand_factor", State(waiting=0))
    assert found is not None
    assert (found.expected, found.bound) == (None, None)


def test_time_that_goes_with_the_tokens_gains_nothing_from_a_larger_batch() -> None:
    waiting = State(shares={"linear": 0.5, "attend": 0.5}, waiting=8)
    found = gain("grow_batch", "step_headroom_share", waiting, per_token_share="attend_share")
    assert found is not None
    assert found.expected == pytest.approx(2 / (0.25 + 2 * 0.75))


def test_reading_less_helps_attention_only() -> None:
    found = gain("read_less", "hit_rate_over_target", State(hit=0.5, kept=0.25, shares={"attend": 0.6}))
    assert found is not None
    assert found.bound == pytest.approx(1 / (1 - 0.3))


def test_without_its_signal_there_is_no_gain() -> None:
    assert gain("remove_share", "access_share", State(drop=("time.gather",))) is None
