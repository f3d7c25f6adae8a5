"""What no page says and arithmetic does: what gaps between tokens are made of, what raising a limit could bring, what a
cache can have lost, and whether a tier ever gave anything back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from kvscope import signals
from kvscope.signals.algebra import Rate, amount, first_of, gauge, rate, ratio, setting, share
from kvscope.signals.evaluate import evaluate
from kvscope.signals.intervals import Intervals, intervals_of
from kvscope.signals.phases import request_phases
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, SIGNALS, UP, declare, procedure
from kvscope.signals.samples import SEND_WORK, WATCH_LONGER, Samples
from kvscope.signals.steps import buckets_of, prompt_tokens, step_times

STALLED = 5.0
"""A gap of this many pure steps is a wait for something else: of steps that merely vary, 99 in 100 lie below three."""
_FEWEST_GAPS = 50
_FEWEST_STRETCHES = 4
HALF = 0.5
"""Where prompts are not told: a pool never more than half full would hold all that ran once more."""
_BOOKS_BY_BLOCK = ("vllm", "dynamo", "llama.cpp")
"""Engines that allot KV as tokens come; what they count as taken is what is held."""
KV_EVENTS = "KV events (vLLM --kv-events-config, SGLang --kv-events-config), or the prompts themselves"


def _inferred(value: float, unit: str, how: str) -> Reading:
    return Reading(value, 0.0, unit, f"inferred: {how}")


@procedure(
    "stalled_gap_share",
    unit="ratio",
    reads=("latency.itl", "tokens.generated", "tokens.prefilled", "batch.tokens_per_step", "sched.running"),
    help="Share of the time between tokens that lies in gaps of five decode steps and more: waits, not decoding.",
)
def stalled_gap_share(samples: Samples) -> Reading | Missing:
    cut = intervals_of(samples)
    if isinstance(cut, Missing):
        return cut
    timed = step_times(cut)
    if timed is None or timed.pure_s <= 0:
        paced = _stalled_stretches(cut)
        if paced is not None:
            return _inferred(paced, "ratio", "stretches in which running requests get a token in five usual steps")
        counter = samples.counter("latency.itl.count")
        return counter if isinstance(counter, Missing) else Missing("no gap between tokens was counted", WATCH_LONGER)
    if timed.gaps < _FEWEST_GAPS:
        return Missing(f"only {timed.gaps:.0f} gaps between tokens in this segment", WATCH_LONGER)
    buckets = buckets_of(samples, "latency.itl")
    whole = timed.token_s * timed.gaps
    if not buckets:
        # Without buckets the mean says the least of it: what all gaps together have beyond pure steps.
        return _inferred(max(0.0, 1 - STALLED * timed.pure_s / timed.token_s), "ratio", "mean gap over pure step")
    long = sum(count * low for low, count in buckets if low >= STALLED * timed.pure_s)
    return _inferred(min(1.0, long / whole), "ratio", "buckets above five pure steps, at their lower edge")


def _stalled_stretches(cut: Intervals) -> float | None:
    """Share of the running requests' time in stretches whose time per token is five times the usual and more.

    The usual is the second fastest stretch, so that no single one decides. A step takes at most in proportion longer
    when it carries more requests; what is beyond that is a wait. Where KV did not grow in a stretch nothing was
    computed in it: an engine that hangs is no engine that prefills. None where pace, requests or pool are not told.
    """
    running, made, held = cut.gauge("sched.running"), cut.grown("tokens.generated"), cut.gauge("kv.usage_ratio")
    if running is None or made is None or held is None:
        return None
    rows = [
        (min(running[k], running[k + 1]), dt, made[k], held[k + 1] > held[k])
        for k, dt in enumerate(cut.lengths)
        if dt > 0 and min(running[k], running[k + 1]) >= 1
    ]
    paces = sorted((present * dt / tokens, present) for present, dt, tokens, _ in rows if tokens > 0)
    if len(paces) < _FEWEST_STRETCHES:
        return None
    usual, batch = paces[1]
    whole = sum(present * dt for present, dt, _, _ in rows)
    stalled = sum(
        present * dt
        for present, dt, tokens, grows in rows
        if grows and present * dt >= STALLED * usual * max(1.0, present / batch) * tokens
    )
    return stalled / whole


@procedure(
    "request_held_up_share",
    unit="ratio",
    reads=("latency.itl", "latency.e2e", "sched.queue_time", "sched.waiting", "tokens.generated"),
    help="Share of a request's time that is no decode step: queue, prefill, prompts of others between its tokens.",
)
def request_held_up_share(samples: Samples) -> Reading | Missing:
    decoding = signals.compute("request_decode_share", samples.store, samples.segment)
    if isinstance(decoding, Missing):
        return decoding
    others = signals.compute("prefill_gap_share", samples.store, samples.segment)
    between = others.value if isinstance(others, Reading) else 0.0
    return _inferred(1 - decoding.value * (1 - between), "ratio", "a request without the decode steps of its own")


@procedure(
    "cap_lift_gain",
    unit="x",
    reads=("sched.running", "sched.waiting", "time.linear", "time.host", "latency.e2e"),
    help="What raising the limit on running requests could bring: by the step's fixed part, else the queue's share.",
)
def cap_lift_gain(samples: Samples) -> Reading | Missing:
    counted = signals.compute("batch_growth_gain", samples.store, samples.segment)
    if isinstance(counted, Reading):
        return counted
    cut = intervals_of(samples)
    if isinstance(cut, Missing):
        return cut
    phases = request_phases(cut)
    if phases is None:
        return Missing("no request ran in this segment", SEND_WORK)
    queued = min(0.99, phases.shares()["queue"])
    return _inferred(1 / (1 - queued), "x", "a request without its queue; at most")


@procedure(
    "booked_over_need",
    unit="x",
    reads=("kv.bytes_per_token_assumed", "kv.bytes_per_token_measured", "engine.info"),
    help="KV that admission counts for a token / what it takes; 1 where an engine allots blocks as tokens come.",
)
def booked_over_need(samples: Samples) -> Reading | Missing:
    told = signals.compute("memory_estimate_coefficient", samples.store, samples.segment)
    if isinstance(told, Reading):
        return told
    if engine_of(samples) in _BOOKS_BY_BLOCK and samples.keys("sched.running"):
        return _inferred(1.0, "x", "this engine allots blocks as tokens come")
    return Missing("nobody says what admission books for a request", "the engine's admission policy (its settings)")


def engine_of(samples: Samples) -> str:
    """Return the engine's name as its source says it, or nothing."""
    return next((dict(labels).get("engine", "") for labels in samples.store.keys("engine.info")), "")


@procedure(
    "prompt_found_share",
    unit="ratio",
    reads=("prefix.hits", "prefix.queries", "tokens.prefilled", "tokens.prompt"),
    help="Prompt tokens that were cached and not computed / all; from what was computed where hits are not counted.",
)
def prompt_found_share(samples: Samples) -> Reading | Missing:
    nothing = "no prompt token came in this segment"
    counted = evaluate(share("prefix.hits", "prefix.queries", nothing), samples)
    if isinstance(counted, Reading):
        return counted
    computed = evaluate(share("tokens.prefilled", "tokens.prompt", nothing), samples)
    if isinstance(computed, Missing):
        return counted
    return Reading(max(0.0, 1 - computed.value), computed.error, "ratio", "inferred: what was not computed")


@procedure(
    "prefix_lost_most",
    unit="ratio",
    reads=("prefix.reusable", "prefix.hits", "prefix.queries", "tokens.prefilled", "kv.capacity_tokens"),
    help="The most of a prompt that a cache can have lost: none where the pool never had to evict.",
)
def prefix_lost_most(samples: Samples) -> Reading | Missing:
    back = evaluate(share("prefix.reusable", "prefix.queries"), samples)
    found = prompt_found_share(samples)
    if isinstance(back, Reading) and isinstance(found, Reading):
        return Reading(max(0.0, back.value - found.value), math.hypot(back.error, found.error), "ratio", back.source)
    turned = pool_turnover(samples)
    if isinstance(turned, Reading) and turned.value < 1:
        return _inferred(
            0.0, "ratio", f"all tokens since the start fill {turned.value:.0%} of the pool, none was evicted"
        )
    if isinstance(found, Reading) and found.value >= 0.9:
        return _inferred(1 - found.value, "ratio", "all that was not found")
    return Missing("nobody says whether prompts came before", KV_EVENTS)


_KEPT_S = 60.0
"""A prefix that is kept for a minute is there when a person, or the next call of an agent, comes back to it."""


@procedure(
    "prefix_lost_plausible",
    unit="ratio",
    reads=("prefix.reusable", "prefix.hits", "prefix.queries", "tokens.prefilled", "kv.capacity_tokens"),
    help="The most of a prompt that the cache can have lost; nothing where look-ups are not counted, or the pool keeps "
    "what it computed for a minute; not known where it is written over sooner and little is found.",
)
def prefix_lost_plausible(samples: Samples) -> Reading | Missing:
    asked = evaluate(rate("tokens.prefilled"), samples)
    if isinstance(asked, Missing):
        return asked
    most = prefix_lost_most(samples)
    found = evaluate(share("prefix.hits", "prefix.queries"), samples)
    if isinstance(most, Reading):
        return most
    if isinstance(found, Missing):
        return _inferred(0.0, "ratio", "no look-up of a prefix is counted")
    kept = evaluate(
        setting("kv.capacity_tokens") * (1.0 - gauge("kv.usage_ratio")) / rate("tokens.prefilled", "tokens.generated"),
        samples,
    )
    if isinstance(kept, Missing) or kept.value >= _KEPT_S:
        return _inferred(0.0, "ratio", "the pool keeps what was computed in the last minute, or nobody says how much")
    return Missing(
        f"the pool is written over every {kept.value:.0f} s, and nobody says whether prompts came before", KV_EVENTS
    )


@procedure(
    "pool_turnover",
    unit="x",
    reads=("tokens.prefilled", "tokens.generated", "kv.capacity_tokens"),
    help="Tokens computed since the engine started / tokens the pool holds: below 1 nothing was ever evicted.",
)
def pool_turnover(samples: Samples) -> Reading | Missing:
    pool = samples.setting("kv.capacity_tokens")
    if isinstance(pool, Missing):
        return pool
    made = [_level(samples, metric) for metric in ("tokens.prefilled", "tokens.generated")]
    if None in made or pool <= 0:
        return Missing("nobody counts the tokens computed since the start", "a page with the engine's own counters")
    return _inferred(sum(one or 0.0 for one in made) / pool, "x", "counters since the engine's start")


def _level(samples: Samples, metric: str) -> float | None:
    """Return where a counter stands at the end of the segment, as its page counts since its start."""
    values = [values[-1] for _, values in samples.slices(metric).values() if values]
    return sum(values) if values else None


@procedure(
    "pace_beside_prompts",
    unit="x",
    reads=("batch.steps", "tokens.generated", "tokens.prefilled", "sched.running"),
    help="Decode steps (else tokens a running request) a second while prompts are computed / while none are.",
)
def pace_beside_prompts(samples: Samples) -> Reading | Missing:
    cut = intervals_of(samples)
    if isinstance(cut, Missing):
        return cut
    prompts, running = prompt_tokens(cut), cut.gauge("sched.running")
    made = cut.grown("batch.steps") or cut.grown("tokens.generated")
    if prompts is None or running is None or made is None:
        return Missing("steps, prompts and running requests are not all told", "a page or log that counts them")
    return _pace(cut, prompts, running, made)


def _pace(
    cut: Intervals, prompts: Sequence[float], running: Sequence[float], made: Sequence[float]
) -> Reading | Missing:
    by_step = cut.grown("batch.steps") is not None
    beside, alone = [0.0, 0.0], [0.0, 0.0]
    usual = max(prompts, default=0.0) / 20
    for k, dt in enumerate(cut.lengths):
        present = min(running[k], running[k + 1])
        if dt <= 0 or present < 1:
            continue
        side = beside if prompts[k] > max(usual, made[k]) else alone
        side[0] += made[k] if by_step else made[k] / present
        side[1] += dt
    if beside[1] <= 0 or alone[1] <= 0 or alone[0] <= 0:
        return Missing("prompts were computed all the time, or never", "watch for longer, with quiet stretches in it")
    return _inferred((beside[0] / beside[1]) / (alone[0] / alone[1]), "x", "stretches with prompts and without")


@procedure(
    "prompt_work_ratio",
    unit="x",
    reads=("tokens.prefilled", "tokens.generated"),
    help="Prompt tokens computed in the whole segment / output tokens of it: counted, so exact.",
)
def prompt_work_ratio(samples: Samples) -> Reading | Missing:
    computed, made = samples.increase_of("tokens.prefilled"), samples.increase_of("tokens.generated")
    if isinstance(computed, Missing):
        prompts, found = samples.increase_of("tokens.prompt"), samples.increase_of("prefix.hits")
        if isinstance(prompts, Missing) or isinstance(found, Missing):
            return computed
        computed = max(0.0, prompts - found)
    if isinstance(made, Missing):
        return made
    if made <= 0:
        return Missing("no token was generated in this segment", SEND_WORK)
    return Reading(computed / made, 0.0, "x", "measured: counted", 1, 1)


@procedure(
    "decode_batch_inferred",
    unit="tokens",
    reads=("tokens.generated", "batch.steps", "latency.itl", "sched.running"),
    help="Output tokens of a step in stretches without a prompt.",
)
def decode_batch_inferred(samples: Samples) -> Reading | Missing:
    cut = intervals_of(samples)
    if isinstance(cut, Missing):
        return cut
    timed = step_times(cut)
    if timed is None or not timed.batch:
        return Missing("nobody counts decode steps", "a page with the engine's step counter, or a profiler trace")
    return _inferred(timed.batch, "tokens", "tokens over steps, where no prompt was computed")


decode_batch = declare(
    "decode_batch",
    first_of(
        ratio("tokens.generated", "batch.decode_steps", "tokens", "no step decoded"),
        SIGNALS["decode_batch_inferred"].expr,
    ),
    NEITHER,
    "Output tokens of a decode step: counted, so idle stretches do not lower it.",
)


attend_step_s = declare(
    "attend_step_s",
    ratio("time.attend", "batch.decode_steps", "s", "no step decoded"),
    DOWN,
    "Attention of one decode step, all layers.",
)


linear_step_s = declare(
    "linear_step_s",
    ratio("time.linear", "batch.decode_steps", "s", "no step decoded"),
    DOWN,
    "Weights of one decode step, all layers: what changes only with the device and the model.",
)


busy_tokens_per_s = declare(
    "busy_tokens_per_s",
    Rate(amount("tokens.generated"), when=amount("sched.running").above(0)),
    UP,
    "Output tokens per second of the time in which requests ran: idle stretches before and after do not count.",
)


@procedure(
    "next_request_room",
    unit="x",
    reads=("kv.usage_ratio", "kv.capacity_tokens", "request.tokens_in", "sched.running", "sched.max_running"),
    help="Prompts that fit what is free of the pool at its fullest; 1 where something else tells that one does.",
)
def next_request_room(samples: Samples) -> Reading | Missing:
    cut = intervals_of(samples)
    if isinstance(cut, Missing):
        return cut
    running, usage, cap = cut.gauge("sched.running"), cut.gauge("kv.usage_ratio"), samples.setting("sched.max_running")
    if running is None:
        return samples.absent("sched.running")
    if engine_of(samples) == "llama.cpp":
        return _inferred(1.0, "x", "this engine lets a request wait for a slot, never for memory")
    if not isinstance(cap, Missing) and cap > 0 and max(running) >= cap:
        return _inferred(1.0, "x", f"all {cap:g} that may run did run: the pool let them in")
    if usage is None:
        return samples.absent("kv.usage_ratio")
    fullest, capacity, prompt = max(usage), samples.setting("kv.capacity_tokens"), cut.mean_of("request.tokens_in")
    if not isinstance(capacity, Missing) and prompt:
        return _inferred((1 - fullest) * capacity / prompt, "x", "free tokens at the fullest over a mean prompt")
    if fullest <= HALF:
        return _inferred((1 - fullest) / max(fullest, 1e-3) * max(running), "x", "as many again as hold what is held")
    return Missing("nobody says how long prompts are or how many tokens the pool holds", "a page with both")


@procedure(
    "steps_have_room",
    unit="x",
    reads=("time.linear", "time.host", "batch.tokens_per_step", "engine.info", "sched.running", "sched.waiting"),
    help="Throughput if all that wait ran too / now, where a step's fixed part is known.",
    better=UP,
)
def steps_have_room(samples: Samples) -> Reading | Missing:
    # A server on one core computes each token by itself: nothing is paid once a step, and no page tells the threads.
    if engine_of(samples) == "llama.cpp" and isinstance(samples.counter("time.linear"), Missing):
        return Missing(
            "nobody says whether steps grow with each request", "a trace, or the server's device and threads"
        )
    return signals.compute("batch_growth_gain", samples.store, samples.segment)


@procedure(
    "waits_for_clients_share",
    unit="ratio",
    reads=("sched.running", "sched.waiting", "batch.steps", "tokens.generated"),
    help="Share of the time between first and last request in which none was there: by steps, or by samples.",
)
def waits_for_clients_share(samples: Samples) -> Reading | Missing:
    by_steps = signals.compute("limit_idle_share", samples.store, samples.segment)
    by_samples = signals.compute("busy_sample_share", samples.store, samples.segment)
    if isinstance(by_steps, Missing) or isinstance(by_samples, Missing):
        return by_steps if isinstance(by_steps, Missing) else by_samples
    failed, outside = samples.increase_of("events.kv_full"), _outside(samples)
    if not isinstance(failed, Missing) and failed > 0:
        return _inferred(by_steps.value, "ratio", "by steps: requests failed for want of room, and none was left")
    empty = max(by_steps.value, 1 - by_samples.value)
    empty = max(0.0, empty - outside) / (1 - outside) if outside < 1 else empty
    return _inferred(empty, "ratio", "what neither samples nor steps show as busy")


def _outside(samples: Samples) -> float:
    """Return the share of the watched time before the first request and behind the last, beyond the longest pause."""
    cut = intervals_of(samples)
    running = None if isinstance(cut, Missing) else cut.gauge("sched.running")
    if isinstance(cut, Missing) or running is None:
        return 0.0
    seen = {time for time, n in zip(cut.times, running, strict=True) if n > 0}
    # Requests that come and go between two samples are in the counters alone.
    for counted in (cut.grown("tokens.generated"), cut.grown("latency.ttft.count"), cut.grown("requests.finished")):
        for index, grown in enumerate(counted or ()):
            seen |= set(cut.times[index : index + 2]) if grown > 0 else set()
    at = sorted(seen)
    if len(at) < 2 or cut.watched_s <= 0:
        return 0.0
    pause = max(after - before for before, after in pairwise(at))
    ends = (at[0] - cut.times[0], cut.times[-1] - at[-1])
    return sum(max(0.0, end - pause) for end in ends) / cut.watched_s
