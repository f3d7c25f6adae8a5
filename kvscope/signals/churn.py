"""Work undone soon after it was done, and steps that belong to others: blocks fetched back, prefill between tokens."""

from __future__ import annotations

import math

from kvscope.signals.batches import edges
from kvscope.signals.latency import mean_of
from kvscope.signals.raw import WATCH_LONGER
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window
from kvscope.store import Segment


@signal(
    "repromoted_share",
    unit="ratio",
    needs=("tier.repromotions", "tier.promotions"),
    help="Blocks made hot again within 16 steps of having been made cold / all blocks made hot.",
)
def repromoted_share(window: Window) -> Reading | Missing:
    nothing = "no block was made hot in this segment"
    return window.ratio(window.counter("tier.repromotions"), window.counter("tier.promotions"), "ratio", nothing)


@signal(
    "promotions_per_step",
    unit="1/step",
    needs=("tier.promotions", "batch.decode_steps"),
    help="Blocks made hot per decode step.",
)
def promotions_per_step(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("tier.promotions"), window.counter("batch.decode_steps"), "1/step")


@signal(
    "refetched_share",
    unit="ratio",
    needs=("tier.refetches", "tier.blocks_in"),
    help="Pages fetched from the host within 16 steps of having been sent there / all pages fetched.",
)
def refetched_share(window: Window) -> Reading | Missing:
    nothing = "no page was fetched in this segment"
    return window.ratio(window.counter("tier.refetches"), window.counter("tier.blocks_in"), "ratio", nothing)


@signal(
    "host_fetched_per_step",
    unit="1/step",
    needs=("tier.blocks_in", "batch.decode_steps"),
    help="Pages fetched from the host per decode step, because it was about to read them.",
)
def host_fetched_per_step(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("tier.blocks_in"), window.counter("batch.decode_steps"), "1/step")


@signal(
    "step_token_turns",
    unit="x",
    needs=("sched.running", "batch.tokens_per_step"),
    help="Running requests / tokens of a step: above 1 requests take turns although all of them could go on.",
)
def step_token_turns(window: Window) -> Reading | Missing:
    rows = window.together("sched.running", "batch.tokens_per_step")
    if isinstance(rows, Missing):
        return rows
    busy = [running / tokens for running, tokens in rows if running > 0 and tokens > 0]
    if len(busy) < 3:
        return Missing("nothing was running in this segment", "send the engine some work")
    return window.spread(busy, "x")


@signal(
    "decode_turns",
    unit="x",
    needs=("sched.running", "tokens.generated", "batch.decode_steps"),
    help="Running requests / output tokens of a decode step: how much larger the batch is if nobody waits for a turn.",
)
def decode_turns(window: Window) -> Reading | Missing:
    running = window.mean("sched.running", "requests")
    batch = window.ratio(window.counter("tokens.generated"), window.counter("batch.decode_steps"), "tokens")
    if isinstance(running, Missing):
        return running
    if isinstance(batch, Missing):
        return batch
    if batch.value <= 0:
        return Missing("no token was generated in this segment", "send the engine some work")
    value = running.value / batch.value
    error = math.hypot(running.error, value * batch.error) / batch.value
    return Reading(value, error, "x", batch.source, batch.batches, batch.samples)


@signal(
    "mixed_step_share",
    unit="ratio",
    needs=("batch.mixed_steps", "batch.decode_steps"),
    help="Decode steps that also computed prompt tokens / decode steps.",
)
def mixed_step_share(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("batch.mixed_steps"), window.counter("batch.decode_steps"), "ratio")


@signal(
    "token_wait_share",
    unit="ratio",
    needs=("latency.tpot", "time.decode", "batch.decode_steps"),
    help="Share of the time between a request's tokens that is no decode step: mostly prefill of others.",
)
def token_wait_share(window: Window) -> Reading | Missing:
    per_token = mean_of(window, "latency.tpot", "s")
    if isinstance(per_token, Missing):
        return per_token
    step = window.ratio(window.counter("time.decode"), window.counter("batch.decode_steps"), "s")
    if isinstance(step, Missing):
        return step
    if per_token.value <= 0:
        return Missing("tokens are reported to take no time", "a source that reports latency.tpot")
    share = step.value / per_token.value
    error = (step.error**2 + (share * per_token.error) ** 2) ** 0.5 / per_token.value
    return Reading(max(0.0, 1 - share), error, "ratio", per_token.source, per_token.batches, per_token.samples)


@signal(
    "engine_age_s",
    unit="s",
    needs=("time.step", "time.idle"),
    help="Seconds that the engine had worked or waited when the segment began.",
)
def engine_age_s(window: Window) -> Reading | Missing:
    spent = 0.0
    for metric in ("time.step", "time.idle"):
        found = window.slices(metric)
        if metric == "time.step" and not found:
            missing = window.counter(metric)
            return missing if isinstance(missing, Missing) else Missing("no step ran", WATCH_LONGER)
        spent += sum(values[0] for _, values in found.values() if values)
    return Reading(spent, 0.0, "s", "measured: the engine's own clock", 1, 1)


@signal(
    "prefill_settling",
    unit="ratio",
    needs=("time.prefill", "time.step"),
    help="Share of the step time spent on prompts in the first half of the segment - in the last third.",
)
def prefill_settling(window: Window) -> Reading | Missing:
    cuts = edges(window.segment.start_s, window.segment.end_s, 6)
    parts = []
    for start, end in ((cuts[0], cuts[3]), (cuts[4], cuts[6])):
        part = Window(window.store, Segment(window.segment.name, start, end, window.segment.tags))
        share, whole = part.increase_of("time.prefill"), part.increase_of("time.step")
        if isinstance(share, Missing):
            return share
        if isinstance(whole, Missing):
            return whole
        if whole <= 0:
            return Missing("no step ran in a part of this segment", WATCH_LONGER)
        parts.append(share / whole)
    return Reading(parts[0] - parts[1], 0.0, "ratio", "measured: first half less last third", 1, 2)
