"""One process, a restart, another engine and several in turns are told apart."""

from __future__ import annotations

import random

import pytest

from kvscope.sources.identity import Processes, Seen


def seen(pages: list[tuple[dict[str, float], float | None, str]]) -> list[Seen]:
    processes: Processes[str] = Processes()
    return [
        processes.see(dict(counters), start, model, float(t)).seen for t, (counters, start, model) in enumerate(pages)
    ]


def steady(first: float, rate: float, count: int) -> list[dict[str, float]]:
    return [{"tokens": first + rate * t, "requests": (first + rate * t) / 100} for t in range(count)]


def test_one_process_that_only_grows_stays_the_same() -> None:
    assert set(seen([(page, None, "m") for page in steady(1000, 900, 50)])) == {Seen.SAME}


def test_a_process_that_counts_from_zero_again_restarted_once_and_goes_on() -> None:
    found = seen([(page, None, "m") for page in [*steady(100_000, 900, 20), *steady(0, 900, 300)]])
    assert found.count(Seen.RESTARTED) == 1
    assert found[20] is Seen.RESTARTED
    assert found.count(Seen.SAME) == len(found) - 1


def test_a_process_that_restarts_again_and_again_is_not_taken_for_several() -> None:
    pages = [page for _ in range(6) for page in steady(0, 900, 10)]
    found = seen([(page, None, "m") for page in pages])
    assert found.count(Seen.RESTARTED) == 5
    assert Seen.SEVERAL not in found


@pytest.mark.parametrize("pattern", ["alternating", "random"])
@pytest.mark.parametrize("offsets", [(0, 50_000), (0, 3_000, 900_000), (10_000, 42_500, 95_000)])
def test_replicas_behind_one_address_are_several_and_each_is_followed(offsets: tuple[int, ...], pattern: str) -> None:
    chance, processes, told = random.Random(4), Processes[str](), []
    numbers: dict[int, set[int]] = {which: set() for which in range(len(offsets))}
    for t in range(120):
        which = t % len(offsets) if pattern == "alternating" else chance.randrange(len(offsets))
        answer = processes.see({"tokens": offsets[which] + 100.0 * t}, None, "m", float(t))
        told.append(answer.seen)
        if t > 60:
            numbers[which].add(answer.number)
    assert told.count(Seen.SEVERAL) == 1
    assert told.count(Seen.RESTARTED) <= 4
    assert Seen.RESTARTED not in told[40:]
    found = [one for one in numbers.values() if one]
    assert all(len(one) == 1 for one in found)
    assert len(set.union(*found)) == len(found)


def test_start_times_tell_replicas_apart_whatever_they_count() -> None:
    starts = [1000.0, 2000.0]
    found = seen([({"tokens": 100.0 * t}, starts[t % 2], "m") for t in range(30)])
    assert found.count(Seen.SEVERAL) == 1
    assert Seen.RESTARTED not in found[4:]


def test_a_start_time_that_is_worked_out_anew_for_each_page_is_no_restart() -> None:
    chance = random.Random(3)
    assert set(seen([(page, 500 + 0.9 * chance.random(), "m") for page in steady(1000, 900, 50)])) == {Seen.SAME}
    again = [*steady(100_000, 900, 9), *steady(0, 900, 9)]
    found = seen([(page, 500.0 if t < 9 else 502.0, "m") for t, page in enumerate(again)])
    assert found.index(Seen.RESTARTED) == 9


def test_another_model_on_the_port_is_another_engine() -> None:
    found = seen(
        [*((page, None, "a") for page in steady(0, 900, 10)), *((page, None, "b") for page in steady(5e8, 900, 10))]
    )
    assert found[10] is Seen.EXCHANGED
    assert found.count(Seen.SAME) == 19


def test_counters_that_leap_as_no_load_makes_them_are_another_engine_of_the_same_model() -> None:
    found = seen([(page, None, "m") for page in [*steady(0, 900, 10), *steady(5e9, 900, 10)]])
    assert found[10] is Seen.EXCHANGED


def test_a_burst_is_the_same_process() -> None:
    found = seen([(page, None, "m") for page in [*steady(0, 9, 10), *steady(50_000, 9_000, 10)]])
    assert set(found) == {Seen.SAME}
