"""What pressure costs: work done again, requests thrown out, gaps between tokens, time before the first."""

from __future__ import annotations

from kvscope.signals.latency import mean_of, quantile_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal(
    "recomputed_share",
    unit="ratio",
    needs=("tokens.recomputed", "tokens.prefilled"),
    help="Tokens computed again after a preemption / prompt tokens computed.",
)
def recomputed_share(window: Window) -> Reading | Missing:
    nothing = "no prompt token was computed in this segment"
    return window.ratio(window.counter("tokens.recomputed"), window.counter("tokens.prefilled"), "ratio", nothing)


@signal(
    "preemptions_per_request",
    unit="1/request",
    needs=("sched.preemptions", "requests.finished", "latency.e2e"),
    help="Times a request was thrown out, per finished request.",
)
def preemptions_per_request(window: Window) -> Reading | Missing:
    finished = window.counter("requests.finished")
    if isinstance(finished, Missing):
        counted = window.counter("latency.e2e.count")
        finished = finished if isinstance(counted, Missing) else counted
    return window.ratio(window.counter("sched.preemptions"), finished, "1/request", "no request finished")


@signal(
    "prefill_e2e_share",
    unit="ratio",
    needs=("latency.prefill_time", "latency.e2e"),
    help="Share of a request's time from first scheduling to first token.",
)
def prefill_e2e_share(window: Window) -> Reading | Missing:
    prefill, whole = mean_of(window, "latency.prefill_time", "s"), mean_of(window, "latency.e2e", "s")
    if isinstance(prefill, Missing):
        return prefill
    if isinstance(whole, Missing):
        return whole
    if whole.value <= 0:
        return Missing("requests are reported to take no time", "a source that reports latency.e2e")
    share = prefill.value / whole.value
    error = (prefill.error**2 + (share * whole.error) ** 2) ** 0.5 / whole.value
    return Reading(share, error, "ratio", prefill.source, prefill.batches, prefill.samples)


@signal(
    "itl_p95_over_mean",
    unit="x",
    needs=("latency.itl",),
    help="95th percentile of the gap between two tokens / its mean: far above 1 some steps take much longer.",
)
def itl_p95_over_mean(window: Window) -> Reading | Missing:
    high, mean = quantile_of(window, "latency.itl", 0.95, "s"), mean_of(window, "latency.itl", "s")
    if isinstance(high, Missing):
        return high
    if isinstance(mean, Missing):
        return mean
    if mean.value <= 0:
        return Missing("the gap between tokens is reported as 0", "a source that reports latency.itl")
    return Reading(high.value / mean.value, high.error / mean.value, "x", high.source, high.batches, high.samples)
