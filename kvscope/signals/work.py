"""Work an engine's own words hide: prompt tokens really computed, requests turned away, guesses that held."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import SIGNALS, signal
from kvscope.signals.window import Window


@signal(
    "prefilled_tokens_per_s",
    unit="1/s",
    needs=("tokens.prefilled",),
    help="Prompt tokens computed per second; those found cached are left out.",
)
def prefilled_tokens_per_s(window: Window) -> Reading | Missing:
    return window.rate("tokens.prefilled", "1/s")


@signal(
    "prefilled_per_generated",
    unit="x",
    needs=("tokens.prefilled", "tokens.generated"),
    help="Prompt tokens computed per output token: how much of the work is prefill.",
)
def prefilled_per_generated(window: Window) -> Reading | Missing:
    nothing = "no token was generated in this segment"
    return window.ratio(window.counter("tokens.prefilled"), window.counter("tokens.generated"), "x", nothing)


@signal("rejections_per_s", unit="1/s", needs=("sched.rejections",), help="Requests turned away per second.")
def rejections_per_s(window: Window) -> Reading | Missing:
    return window.rate("sched.rejections", "1/s")


@signal(
    "spec_accepted_share",
    unit="ratio",
    needs=("spec.accepted_tokens", "spec.draft_tokens"),
    help="Tokens proposed by speculative decoding that were right / all proposed.",
)
def spec_accepted_share(window: Window) -> Reading | Missing:
    nothing = "no token was proposed in this segment"
    return window.ratio(window.counter("spec.accepted_tokens"), window.counter("spec.draft_tokens"), "ratio", nothing)


@signal(
    "busy_sample_share",
    unit="ratio",
    needs=("sched.running", "sched.waiting", "time.step", "time.idle"),
    help="Share of the time (of the samples, where idle time is not told) in which any request was there.",
)
def busy_sample_share(window: Window) -> Reading | Missing:
    if window.slices("time.idle"):
        spent = window.total(("time.step", "time.idle"))
        return window.ratio(window.counter("time.step"), spent, "ratio", "no time was counted in this segment")
    rows = window.together("sched.running", "sched.waiting")
    if isinstance(rows, Missing):
        return rows
    busy = sum(1 for running, waiting in rows if running + waiting > 0)
    share = busy / len(rows)
    error = 2 * (share * (1 - share) / len(rows)) ** 0.5
    return Reading(share, error, "ratio", "measured: samples of the gauges", 1, len(rows))


@signal(
    "batch_growth_gain",
    unit="x",
    needs=("sched.running", "sched.waiting", "time.linear", "time.host"),
    help="Throughput if all that wait ran too / now: a step grows by what it does for each request only.",
)
def batch_growth_gain(window: Window) -> Reading | Missing:
    once, demand = SIGNALS["step_headroom_share"].formula(window), SIGNALS["demand_factor"].formula(window)
    if isinstance(once, Missing):
        return once
    if isinstance(demand, Missing):
        return demand
    grown, fixed = max(1.0, demand.value), min(max(once.value, 0.0), 1.0)
    step = fixed + grown * (1 - fixed)
    error = grown / step**2 * ((once.error * (grown - 1)) ** 2 + (demand.error * fixed / grown) ** 2) ** 0.5
    return Reading(grown / step, error, "x", once.source, once.batches, once.samples)
