"""Batch means: errors that neither promise too much nor break on resets."""

from __future__ import annotations

import math
import random

import pytest

from kvscope.signals import batches as bm


def test_a_counter_that_goes_back_was_reset_and_its_increase_goes_on() -> None:
    assert bm.increase([0, 1, 2, 3, 4], [100, 110, 5, 15, 20]) == ([0, 10, 15, 25, 30], 1)


def test_a_counter_without_resets_is_only_shifted_to_zero() -> None:
    assert bm.increase([0, 1], [7, 9]) == ([0, 2], 0)
    assert bm.increase([], []) == ([], 0)


def test_a_counter_is_read_straight_between_samples_and_held_outside() -> None:
    times, values = [1.0, 3.0], [0.0, 10.0]
    assert [bm.at(times, values, t) for t in (0.0, 1.0, 2.0, 3.0, 9.0)] == [0.0, 0.0, 5.0, 10.0, 10.0]


def test_fewer_batches_make_wider_intervals() -> None:
    assert [bm.factor(n) for n in (2, 3, 9, 10, 50)] == [12.71, 4.30, 2.31, 2.0, 2.0]


def test_a_constant_has_no_error() -> None:
    assert bm.mean_and_error([3.0] * 10) == (3.0, 0.0)


def test_the_interval_of_a_mean_covers_the_truth_nineteen_times_in_twenty() -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(1000):
        mean, error = bm.mean_and_error([rng.gauss(10, 2) for _ in range(10)])
        covered += abs(mean - 10) <= error
    assert 900 <= covered <= 980


def test_a_ratio_weighs_long_batches_more_and_takes_idle_ones() -> None:
    value, error = bm.ratio_and_error([1.0, 0.0, 3.0], [10.0, 0.0, 30.0])
    assert value == pytest.approx(0.1)
    assert error == pytest.approx(0.0)


def test_a_batch_without_samples_has_no_mean() -> None:
    assert bm.bin_means([0.0, 0.5, 9.0], [2.0, 4.0, 7.0], [0.0, 3.0, 6.0, 9.0]) == [3.0, None, 7.0]


def test_the_error_of_a_quantile_shrinks_with_the_number_of_values() -> None:
    few, many = [i / 10 for i in range(11)], [i / 1000 for i in range(1001)]
    assert bm.quantile(few, 0.5) == bm.quantile(many, 0.5) == 0.5
    assert bm.quantile_error(many, 0.5) < 0.05 < bm.quantile_error(few, 0.5)
    assert math.isfinite(bm.quantile_error(few, 0.95))
