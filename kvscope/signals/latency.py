"""Latency as requests saw it: from one value per request where there is one, else from a page's histograms; and
how the last third of a segment compares with the first, where nobody marked a change.
"""

from __future__ import annotations

import math

from kvscope.signals.accounting import prefill_time_share
from kvscope.signals.algebra import Expr, Within, first_of, gauge, mean_of, quantile_of, rate
from kvscope.signals.evaluate import buckets, evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, declare, procedure
from kvscope.signals.samples import WATCH_LONGER, Samples

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LATENCIES = {
    "ttft": ("latency.ttft", "Arrival to first token, queue included"),
    "tpot": ("latency.tpot", "(Last token − first token) / (output tokens − 1) of a request"),
    "itl": ("latency.itl", "Gap between two consecutive tokens"),
    "e2e": ("latency.e2e", "Arrival to last token"),
    "queue_time": ("sched.queue_time", "Arrival to first scheduling"),
    "prefill_time": ("latency.prefill_time", "First scheduling to first token"),
}
_LONG, _FEWEST = 4.0, 20

for _name, (_metric, _help) in LATENCIES.items():
    declare(f"{_name}_mean_s", mean_of(_metric), DOWN, f"{_help}: mean.")
    for _label, _q in QUANTILES.items():
        declare(f"{_name}_{_label}_s", quantile_of(_metric, _q), DOWN, f"{_help}: {_label}.")

token_time = declare(
    "token_time_s",
    first_of(mean_of("latency.tpot"), mean_of("latency.itl")),
    DOWN,
    "Time per output token of a request, mean; the mean gap between tokens where requests are not told.",
)
declare(
    "queue_ttft_share",
    mean_of("sched.queue_time") / mean_of("latency.ttft"),
    DOWN,
    "Share of the time to the first token that was spent waiting to be scheduled.",
    unit="ratio",
)
declare(
    "prefill_e2e_share",
    mean_of("latency.prefill_time") / mean_of("latency.e2e"),
    NEITHER,
    "Share of a request's time from first scheduling to first token.",
    unit="ratio",
)
declare(
    "itl_p95_over_mean",
    quantile_of("latency.itl", 0.95) / mean_of("latency.itl"),
    DOWN,
    "95th percentile of the gap between two tokens / its mean: far above 1 some steps take much longer.",
    unit="x",
)
declare("prompt_tokens_mean", mean_of("request.tokens_in"), NEITHER, "Prompt tokens of a request, mean.")
declare("output_tokens_mean", mean_of("request.tokens_out"), NEITHER, "Output tokens of a request, mean.")
declare(
    "context_tokens_mean",
    gauge("batch.context_tokens"),
    NEITHER,
    "Context length of the requests in the decode batch, mean.",
)


@procedure(
    "ttft_long_share",
    unit="ratio",
    reads=("latency.ttft",),
    better=DOWN,
    help="Share of the requests whose first token took more than four times the mean.",
)
def ttft_long_share(samples: Samples) -> Reading | Missing:
    """A share, because a histogram's buckets make high quantiles wide."""
    return _long_share(samples, "latency.ttft")


@procedure(
    "prompt_long_share",
    unit="ratio",
    reads=("request.tokens_in",),
    help="Share of the requests whose prompt is more than four times the mean.",
)
def prompt_long_share(samples: Samples) -> Reading | Missing:
    """As above, of the prompts."""
    return _long_share(samples, "request.tokens_in")


def _long_share(samples: Samples, metric: str) -> Reading | Missing:
    """Return the share above four means; from buckets the share above the first bound that is not below it."""
    mean = evaluate(mean_of(metric), samples)
    if isinstance(mean, Missing):
        return mean
    limit, pairs = _LONG * mean.value, samples.observed(metric)
    if isinstance(pairs, Missing):
        told = buckets(metric, samples)
        if isinstance(told, Missing):
            return told
        total = told.get(math.inf, 0.0)
        within = next((count for bound, count in told.items() if bound >= limit), total)
        above = total - within
    else:
        total, above = float(len(pairs[1])), float(sum(1 for value in pairs[1] if value > limit))
    if total < _FEWEST:
        return Missing(f"{metric}: only {total:.0f} requests finished in this segment", WATCH_LONGER)
    value = above / total
    error = 2 * math.sqrt(max(value * (1 - value), 1 / total) / total)
    return Reading(value, error, "ratio", f"measured: {total:.0f} requests", 1, round(total))


def _trend(expr: Expr) -> Expr:
    """Return the relative change (0.1 = 10 % more)."""
    return Within(expr, 2 / 3, 1.0) / Within(expr, 0.0, 1 / 3) - 1


declare(
    "kv_usage_trend",
    _trend(gauge("kv.usage_ratio")),
    NEITHER,
    "Change of the pool's use from the first third of the segment to the last: -0.5 is half.",
    unit="x",
)
declare(
    "generation_trend",
    _trend(rate("tokens.generated")),
    NEITHER,
    "Change of output tokens per second from the first third of the segment to the last: 0 is none.",
    unit="x",
)
declare(
    "tpot_trend",
    _trend(token_time),
    DOWN,
    "Change of the time per output token from the first third of the segment to the last: 0.5 is half more.",
    unit="x",
)
declare(
    "prefill_settling",
    Within(prefill_time_share, 0.0, 0.5) - Within(prefill_time_share, 2 / 3, 1.0),
    NEITHER,
    "Share of the step time spent on prompts in the first half of the segment - in the last third.",
)
