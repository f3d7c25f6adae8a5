"""Latency as requests saw it: from one value per request where there is one, else from a page's histograms."""

from __future__ import annotations

import math
from collections.abc import Callable

from kvscope.signals.batches import BATCHES, bin_means, edges, mean_and_error, quantile, quantile_error
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import WATCH_LONGER, Window

_MIN_REQUESTS = 5

QUANTILES = {"p50": 0.5, "p95": 0.95}
LATENCIES = {
    "ttft": ("latency.ttft", "Arrival to first token, queue included"),
    "tpot": ("latency.tpot", "(Last token − first token) / (output tokens − 1) of a request"),
    "itl": ("latency.itl", "Gap between two consecutive tokens"),
    "e2e": ("latency.e2e", "Arrival to last token"),
    "queue_time": ("sched.queue_time", "Arrival to first scheduling"),
    "prefill_time": ("latency.prefill_time", "First scheduling to first token"),
}


def mean_of(window: Window, metric: str, unit: str) -> Reading | Missing:
    """Return the mean over requests: of the values themselves, or a histogram's sum / count."""
    pairs = window.observed(metric)
    if isinstance(pairs, Missing):
        sums, counts = window.counter(f"{metric}.sum"), window.counter(f"{metric}.count")
        if isinstance(counts, Missing):
            return counts if window.store.keys(f"{metric}.count") else pairs
        return window.ratio(sums, counts, unit, "no request reported one in this segment")
    times, values = pairs
    if len(values) < _MIN_REQUESTS:
        return Missing(f"{metric}: only {len(values)} requests finished in this segment", WATCH_LONGER)
    count = min(BATCHES, len(values) // 2)
    known = [mean for mean in bin_means(times, values, edges(times[0], times[-1], count)) if mean is not None]
    if len(known) < 2:
        return Missing(f"{metric}: all requests finished at once", WATCH_LONGER)
    _, error = mean_and_error(known)
    return Reading(sum(values) / len(values), error, unit, "measured: each request", len(known), len(values))


def quantile_of(window: Window, metric: str, q: float, unit: str) -> Reading | Missing:
    """Return a quantile over requests: exact from the values, or within a histogram's bucket."""
    pairs = window.observed(metric)
    if isinstance(pairs, Missing):
        return _from_buckets(window, metric, q, unit, pairs)
    ordered = sorted(pairs[1])
    if len(ordered) < _MIN_REQUESTS:
        return Missing(f"{metric}: only {len(ordered)} requests finished in this segment", WATCH_LONGER)
    error = quantile_error(ordered, q)
    return Reading(quantile(ordered, q), error, unit, "measured: each request", BATCHES, len(ordered))


def _from_buckets(window: Window, metric: str, q: float, unit: str, absent: Missing) -> Reading | Missing:
    bounds = sorted({_bound(dict(labels).get("le", "")) for labels in window.store.keys(f"{metric}.bucket")})
    if not bounds:
        return absent
    grown: list[float] = []
    for bound in bounds:
        total = _bucket_increase(window, metric, bound)
        if isinstance(total, Missing):
            return total
        grown.append(max(total, grown[-1] if grown else 0.0))
    if grown[-1] < _MIN_REQUESTS:
        return Missing(f"{metric}: only {grown[-1]:.0f} values in this segment", WATCH_LONGER)
    index = next(i for i, total in enumerate(grown) if total >= q * grown[-1])
    low, below = (bounds[index - 1], grown[index - 1]) if index else (0.0, 0.0)
    if math.isinf(bounds[index]):
        return Missing(f"{metric}: the quantile lies above the last bucket ({low:g})", "finer buckets")
    part = (q * grown[-1] - below) / (grown[index] - below)
    value = low + part * (bounds[index] - low)
    error = max(value - low, bounds[index] - value)
    source = f"inferred: histogram bucket {low:g} to {bounds[index]:g}"
    return Reading(value, error, unit, source, 1, round(grown[-1]))


def _bucket_increase(window: Window, metric: str, bound: float) -> float | Missing:
    """Sum one bucket over all other labels, whichever way its bound is spelt (``1`` and ``1.0``)."""
    spelt = {dict(labels)["le"] for labels in window.store.keys(f"{metric}.bucket")}
    same = [window.increase_of(f"{metric}.bucket", le=text) for text in spelt if _bound(text) == bound]
    known = [value for value in same if not isinstance(value, Missing)]
    return sum(known) if known else next(value for value in same if isinstance(value, Missing))


def _bound(text: str) -> float:
    return math.inf if text in ("+Inf", "inf", "") else float(text)


def _mean_signal(metric: str) -> Callable[[Window], Reading | Missing]:
    return lambda window: mean_of(window, metric, "s")


def _quantile_signal(metric: str, q: float) -> Callable[[Window], Reading | Missing]:
    return lambda window: quantile_of(window, metric, q, "s")


for _name, (_metric, _help) in LATENCIES.items():
    signal(f"{_name}_mean_s", unit="s", needs=(_metric,), help=f"{_help}: mean.")(_mean_signal(_metric))
    for _label, _q in QUANTILES.items():
        signal(f"{_name}_{_label}_s", unit="s", needs=(_metric,), help=f"{_help}: {_label}.")(
            _quantile_signal(_metric, _q)
        )


@signal(
    "queue_ttft_share",
    unit="ratio",
    needs=("sched.queue_time", "latency.ttft"),
    help="Share of the time to the first token that was spent waiting to be scheduled.",
)
def queue_ttft_share(window: Window) -> Reading | Missing:
    queue, ttft = mean_of(window, "sched.queue_time", "s"), mean_of(window, "latency.ttft", "s")
    if isinstance(queue, Missing):
        return queue
    if isinstance(ttft, Missing):
        return ttft
    if ttft.value <= 0:
        return Missing("the first token took no time", "a source that reports latency.ttft")
    value = queue.value / ttft.value
    # The error of the queue alone: both means come from the same requests and move together.
    return Reading(value, queue.error / ttft.value, "ratio", ttft.source, ttft.batches, ttft.samples)


@signal("prompt_tokens_mean", unit="tokens", needs=("request.tokens_in",), help="Prompt tokens of a request, mean.")
def prompt_tokens_mean(window: Window) -> Reading | Missing:
    return mean_of(window, "request.tokens_in", "tokens")


@signal("output_tokens_mean", unit="tokens", needs=("request.tokens_out",), help="Output tokens of a request, mean.")
def output_tokens_mean(window: Window) -> Reading | Missing:
    return mean_of(window, "request.tokens_out", "tokens")


@signal(
    "context_tokens_mean",
    unit="tokens",
    needs=("batch.context_tokens",),
    help="Context length of the requests in the decode batch, mean.",
)
def context_tokens_mean(window: Window) -> Reading | Missing:
    return window.mean("batch.context_tokens", "tokens")
