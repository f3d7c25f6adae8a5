"""Times do not jump when a clock is set, and a person is told."""

from __future__ import annotations

import pytest

from kvscope.sources.clock import SteadyClock, Straightener


class Clocks:
    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 5.0

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.mark.parametrize("by", [-3600.0, -15.0, 15.0, 86_400.0])
def test_setting_the_wall_clock_moves_no_time_and_is_told_once(by: float) -> None:
    clocks = Clocks()
    clock = SteadyClock(lambda: clocks.wall, lambda: clocks.steady)
    before = clock.now()
    clocks.wall += by
    clocks.pass_s(10.0)
    assert clock.now() == pytest.approx(before + 10.0)
    assert f"by {abs(by):.0f} s" in clock.told()
    assert clock.told() == ""


def test_a_time_taken_by_another_process_after_the_clock_was_set_is_turned_into_ours() -> None:
    clocks = Clocks()
    clock = SteadyClock(lambda: clocks.wall, lambda: clocks.steady)
    clocks.wall -= 600.0
    assert clock.of_wall(clocks.wall) == pytest.approx(clock.now())


def rates(times: list[float], values: list[float]) -> tuple[float, list[str]]:
    straightener: Straightener[str] = Straightener()
    told, straight = [], []
    for t, value in zip(times, values, strict=True):
        found, notice = straightener.straight(t, {"tokens": value})
        straight.append(found)
        told += [notice] if notice else []
    assert straight == sorted(straight)
    return (values[-1] - values[0]) / (straight[-1] - straight[0]), told


@pytest.mark.parametrize("set_by", [-3600.0, -60.0, 3600.0])
@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
def test_saved_times_of_a_clock_that_was_set_give_the_true_rate_and_it_is_told(set_by: float, interval: float) -> None:
    times = [1e9 + interval * n + (set_by if n >= 20 else 0.0) for n in range(40)]
    rate, told = rates(times, [900.0 * interval * n for n in range(40)])
    assert rate == pytest.approx(900.0, rel=0.01)
    assert len(told) == 1
    assert "clock" in told[0]


def test_a_gap_in_which_the_engine_went_on_is_a_gap_and_no_clock() -> None:
    times = [float(n) for n in range(20)] + [3600.0 + n for n in range(20)]
    rate, told = rates(times, [900.0 * t for t in times])
    assert rate == pytest.approx(900.0)
    assert told == []
