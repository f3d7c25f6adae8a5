"""Batch means: how sure a number is when its samples are correlated.

A window is cut into ten batches of equal time; the error is two standard errors of the mean of the batch means. Fewer
batches get Student's wider factor.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import gt

BATCHES = 10
_T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31}


def factor(batches: int) -> float:
    """Standard errors that make an interval of about 95 % out of ``batches`` batch means."""
    return _T95.get(batches - 1, 2.0)


def edges(start_s: float, end_s: float, batches: int) -> list[float]:
    """Return ``batches`` + 1 evenly spaced times."""
    width = (end_s - start_s) / batches
    return [start_s + width * i for i in range(batches)] + [end_s]


def increase(times: Sequence[float], values: Sequence[float]) -> tuple[list[float], int]:
    """Return a counter as its increase since the first sample, and how often it was reset.

    A value lower than its predecessor means that the process restarted from zero: what it shows then is the increase.
    """
    if len(times) != len(values):
        raise ValueError(f"{len(times)} times for {len(values)} values")
    if not values:
        return [], 0
    first = values[0]
    if not any(map(gt, values, values[1:])):
        return [value - first for value in values], 0
    lifted, total, resets = [0.0], 0.0, 0
    for before, after in pairwise(values):
        if after < before:
            resets += 1
        total += after if after < before else after - before
        lifted.append(total)
    return lifted, resets


def at(times: Sequence[float], values: Sequence[float], t: float) -> float:
    """Read a counter at ``t``, straight between its samples and constant outside them."""
    index = bisect_right(times, t)
    if index == 0:
        return values[0]
    if index == len(times):
        return values[-1]
    span = times[index] - times[index - 1]
    part = (t - times[index - 1]) / span if span else 1.0
    return values[index - 1] + part * (values[index] - values[index - 1])


def bin_means(times: Sequence[float], values: Sequence[float], cuts: Sequence[float]) -> list[float | None]:
    """Return the mean of the values between every two cuts (the last one included), None where there are none."""
    found: list[float | None] = []
    low = bisect_left(times, cuts[0])
    for index, cut in enumerate(cuts[1:], 1):
        high = bisect_right(times, cut) if index == len(cuts) - 1 else bisect_left(times, cut)
        found.append(sum(values[low:high]) / (high - low) if high > low else None)
        low = high
    return found


def mean_and_error(means: Sequence[float]) -> tuple[float, float]:
    """Return the mean of batch means and its error; needs two of them."""
    count = len(means)
    mean = sum(means) / count
    variance = sum((value - mean) ** 2 for value in means) / (count - 1)
    return mean, _above_rounding(factor(count) * math.sqrt(variance / count), mean)


def ratio_and_error(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float]:
    """Return sum(tops)/sum(bottoms) and its error from the batches' residuals (the ratio estimator).

    Long batches weigh more, so idle ones (bottom 0) do no harm. Needs two batches and a positive sum of bottoms.
    """
    count, total = len(tops), sum(bottoms)
    ratio = sum(tops) / total
    residual = sum((top - ratio * bottom) ** 2 for top, bottom in zip(tops, bottoms, strict=True))
    return ratio, _above_rounding(factor(count) * math.sqrt(residual * count / (count - 1)) / total, ratio)


def _above_rounding(error: float, value: float) -> float:
    """Call an error 0 that only floating point made."""
    return error if error > 1e-12 * abs(value) else 0.0


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the ``q`` quantile of sorted values, straight between ranks."""
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def quantile_error(ordered: Sequence[float], q: float) -> float:
    """Return the half width of the order-statistics interval of a quantile (two standard errors of the rank)."""
    count = len(ordered)
    reach = 2.0 * math.sqrt(q * (1 - q) / count)
    low, high = quantile(ordered, max(0.0, q - reach)), quantile(ordered, min(1.0, q + reach))
    middle = quantile(ordered, q)
    return max(middle - low, high - middle)
