"""What limited the engine when: bins are those of the account, and a bin that is over is read once."""

from __future__ import annotations

import pytest

from kvscope.account import Strip, account_now, account_over_time
from kvscope.store import Store
from probes.sample import Sample
from tests.scheduler import Scenario, simulate


def two_halves() -> Store:
    """Forty seconds at a cap, then forty of plenty: the counters start again, as after a restart."""
    store = Store()
    capped, free = (simulate(Scenario(24, cap=most), 40, 1, warm_up_s=2.0).samples for most in (4, 64))
    store.add(capped)
    store.add(one._replace(t=one.t + 40.0) for one in free)
    return store


def test_bins_say_what_limited_the_engine_when() -> None:
    names = [one.limit for one in account_over_time(two_halves())]
    assert names[1:4] == ["cap"] * 3
    assert names[-3:] == ["demand"] * 3


def test_a_bin_that_is_over_is_read_once() -> None:
    store, strip = two_halves(), Strip(10.0)
    before = strip.bins(store)
    store.add([Sample("sched.running", 0.0, (store.span or (0.0, 0.0))[1] + 1.0, ())])
    after = strip.bins(store)
    assert [id(one) for one in before[:-1]] == [id(one) for one in after[: len(before) - 1]]
    assert before[-1].start_s == after[len(before) - 1].start_s


def test_a_span_may_be_asked_for_and_a_store_may_be_empty() -> None:
    store = two_halves()
    start, _end = store.span or (0.0, 0.0)
    assert {one.limit for one in account_over_time(store, start + 12, start + 28)} == {"cap"}
    assert account_over_time(Store()) == ()
    assert account_now(Store()) is None
    with pytest.raises(ValueError, match="bin_s"):
        Strip(0.0)


def test_now_is_the_last_seconds_of_what_is_shown() -> None:
    store = two_halves()
    start, _end = store.span or (0.0, 0.0)
    newest, past = account_now(store), account_now(store, at_s=start + 30)
    assert newest is not None
    assert past is not None
    assert (newest.limit.name, past.limit.name) == ("demand", "cap")
