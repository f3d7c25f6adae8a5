"""Tails: how many requests are far above the mean. A share, because a histogram's buckets make high quantiles wide."""

from __future__ import annotations

import math

from kvscope.signals.latency import mean_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import WATCH_LONGER, Window

_TIMES = 4.0
_FEWEST = 20


@signal(
    "ttft_long_share",
    unit="ratio",
    needs=("latency.ttft",),
    help="Share of the requests whose first token took more than four times the mean.",
)
def ttft_long_share(window: Window) -> Reading | Missing:
    return _share_above(window, "latency.ttft", "s")


@signal(
    "prompt_long_share",
    unit="ratio",
    needs=("request.tokens_in",),
    help="Share of the requests whose prompt is more than four times the mean.",
)
def prompt_long_share(window: Window) -> Reading | Missing:
    return _share_above(window, "request.tokens_in", "tokens")


def _share_above(window: Window, metric: str, unit: str) -> Reading | Missing:
    """Return the share above four means; from buckets the share above the first bound that is not below it."""
    mean = mean_of(window, metric, unit)
    if isinstance(mean, Missing):
        return mean
    limit, pairs = _TIMES * mean.value, window.observed(metric)
    if isinstance(pairs, Missing):
        total, above = _in_buckets(window, metric, limit)
    else:
        total, above = float(len(pairs[1])), float(sum(1 for value in pairs[1] if value > limit))
    if total < _FEWEST:
        return Missing(f"{metric}: only {total:.0f} requests finished in this segment", WATCH_LONGER)
    share = above / total
    error = 2 * math.sqrt(max(share * (1 - share), 1 / total) / total)
    return Reading(share, error, "ratio", f"measured: {total:.0f} requests", 1, round(total))


def _in_buckets(window: Window, metric: str, limit: float) -> tuple[float, float]:
    grown: dict[float, float] = {}
    for spelt in {dict(labels)["le"] for labels in window.store.keys(f"{metric}.bucket")}:
        by = window.increase_of(f"{metric}.bucket", le=spelt)
        bound = math.inf if spelt in ("+Inf", "inf") else float(spelt)
        grown[bound] = grown.get(bound, 0.0) + (0.0 if isinstance(by, Missing) else by)
    total = grown.get(math.inf, 0.0)
    above = [bound for bound in grown if bound >= limit]
    return total, total - grown[min(above)] if above else 0.0
