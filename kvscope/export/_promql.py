"""Signals as PromQL over one engine's own names. A signal that cannot mean the same there has no expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvscope.signals.accounting import WEIGHTS_IN_TOKENS
from kvscope.sources.maps import load
from kvscope.sources.maps._base import Entry

WINDOW = "5m"
_STEP = "2s"
"""How finely a share of moments is counted."""
BY = "instance"
"""What one engine is to Prometheus; series that differ in other labels belong to the same engine."""
GAUGES = {
    "waiting_requests": "sched.waiting",
    "running_requests": "sched.running",
    "deferred_requests": "sched.deferred",
    "kv_usage_ratio": "kv.usage_ratio",
    "tier_usage_ratio": "tier.usage_ratio",
    "fetching_requests": "sched.fetching",
}
RATES = {
    "generation_tokens_per_s": "tokens.generated",
    "preemptions_per_s": "sched.preemptions",
    "rejections_per_s": "sched.rejections",
    "prefilled_tokens_per_s": "tokens.prefilled",
    "prefix_queries_per_s": "prefix.queries",
    "evicted_tokens_per_s": "cache.evicted_tokens",
    "tier_load_bytes_per_s": "tier.bytes_in",
    "tier_store_bytes_per_s": "tier.bytes_out",
    "tier_failures_per_s": "tier.failures",
    "tier_link_busy_share": "tier.load_time",
}
RATIOS = {
    "prefix_hit_rate": ("prefix.hits", "prefix.queries"),
    "tier_hit_rate": ("tier.hits", "tier.queries"),
    "prefilled_per_generated": ("tokens.prefilled", "tokens.generated"),
    "spec_accepted_share": ("spec.accepted_tokens", "spec.draft_tokens"),
    "tier_loads_per_store": ("tier.bytes_in", "tier.bytes_out"),
}
MEANS = {
    "ttft_mean_s": "latency.ttft",
    "tpot_mean_s": "latency.tpot",
    "itl_mean_s": "latency.itl",
    "e2e_mean_s": "latency.e2e",
    "queue_time_mean_s": "sched.queue_time",
    "prefill_time_mean_s": "latency.prefill_time",
    "output_tokens_mean": "request.tokens_out",
    "prompt_tokens_mean": "request.tokens_in",
}
MEAN_RATIOS = {
    "queue_ttft_share": ("sched.queue_time", "latency.ttft"),
    "prefill_e2e_share": ("latency.prefill_time", "latency.e2e"),
}


class Names:
    """The page names of one engine, as selectors."""

    def __init__(self, engine: str) -> None:
        self._entries: dict[str, Entry] = {}
        for entry in load(engine).MAP:
            if not entry.until and not entry.unless:
                self._entries.setdefault(entry.metric, entry)

    def gauge(self, metric: str) -> str | None:
        """Return the time average of a gauge: averaged over label sets where it is a share, else summed."""
        entry = self._entries.get(metric)
        if entry is None or entry.kind != "gauge":
            return None
        how = "avg" if entry.combine == "mean" else "sum"
        return f"{how} by ({BY}) ({self._once(entry, f'avg_over_time({self._selector(entry)}[{WINDOW}])')})"

    def now(self, metric: str) -> str | None:
        """Return a gauge's present value, summed."""
        entry = self._entries.get(metric)
        return None if entry is None else f"sum by ({BY}) ({self._once(entry, self._selector(entry))})"

    def top(self, metric: str) -> str:
        """Return a gauge's highest value within the window, summed over the parts of an engine."""
        entry = self._entries[metric]
        return f"sum by ({BY}) ({self._once(entry, f'max_over_time({self._selector(entry)}[{WINDOW}])')})"

    def rate(self, metric: str, part: str = "") -> str | None:
        """Return the rate of a counter, or of a histogram's ``_sum`` or ``_count``."""
        entry = self._entries.get(metric)
        if entry is None or (entry.kind == "histogram") != bool(part):
            return None
        rate = f"rate({self._selector(entry, part)}[{WINDOW}])"
        scale = f" * {entry.scale:g}" if entry.scale != 1 and part != "_count" else ""
        return f"sum by ({BY}) ({self._once(entry, rate)}){scale}"

    @staticmethod
    def _selector(entry: Entry, part: str = "") -> str:
        where = ",".join(f'{label}="{value}"' for label, value in entry.where)
        return f"{entry.name}{part}" + ("{" + where + "}" if where else "")

    @staticmethod
    def _once(entry: Entry, inner: str) -> str:
        return f"max without ({', '.join(entry.copies)}) ({inner})" if entry.copies else inner


def expression(signal: str, names: Names) -> str | None:
    """Return a signal over the last ``WINDOW``, or None where the engine or the language cannot say it."""
    if signal in GAUGES:
        return names.gauge(GAUGES[signal])
    if signal in RATES:
        return names.rate(RATES[signal])
    if signal in RATIOS:
        return _over(*(names.rate(metric) for metric in RATIOS[signal]))
    if signal in MEANS:
        return _over(names.rate(MEANS[signal], "_sum"), names.rate(MEANS[signal], "_count"))
    if signal in MEAN_RATIOS:
        return _over(*(names.rate(metric, "_sum") for metric in MEAN_RATIOS[signal]))
    made = _SPECIAL.get(signal)
    return made(names) if made else None


def _over(top: str | None, bottom: str | None) -> str | None:
    return f"({top}) / ({bottom} > 0)" if top and bottom else None


def _busy(names: Names) -> str | None:
    running, waiting = names.now("sched.running"), names.now("sched.waiting")
    return f"avg_over_time((({running} + {waiting}) > bool 0)[{WINDOW}:{_STEP}])" if running and waiting else None


def _at_the_limit(names: Names) -> str | None:
    running, waiting = names.now("sched.running"), names.now("sched.waiting")
    if not running or not waiting:
        return None
    top = names.top("sched.running")
    bound = f"avg_over_time((({running} >= bool {top}) * ({waiting} > bool 0))[{WINDOW}:{_STEP}])"
    busy = _busy(names)
    return f"({bound}) / (({busy}) > 0)"


def _next(names: Names) -> str | None:
    usage, running = names.gauge("kv.usage_ratio"), names.gauge("sched.running")
    return f"({usage}) * (1 + 1 / clamp_min({running}, 1))" if usage and running else None


def _headroom(names: Names) -> str | None:
    tokens = _over(names.rate("batch.tokens_per_step", "_sum"), names.rate("batch.tokens_per_step", "_count"))
    return f"1 / (1 + ({tokens}) / {WEIGHTS_IN_TOKENS})" if tokens else None


def _growth(names: Names) -> str | None:
    running, waiting, once = names.gauge("sched.running"), names.gauge("sched.waiting"), _headroom(names)
    if not running or not waiting or not once:
        return None
    return f"(({running}) + ({waiting})) / ((({running}) + ({waiting}) * (1 - ({once}))) > 0)"


_SPECIAL: Mapping[str, Callable[[Names], str | None]] = {
    "batch_growth_gain": _growth,
    "busy_sample_share": _busy,
    "cap_bound_share": _at_the_limit,
    "kv_assumed_next_share": _next,
    "step_headroom_share": _headroom,
}
