"""Load: how much was asked, how much runs, what stops more from running, and what bound each step."""

from __future__ import annotations

from kvscope.signals import batches as bm
from kvscope.signals.accounting import step_headroom_share
from kvscope.signals.algebra import (
    BUSY,
    QUEUED,
    RUNNING,
    Clip,
    Expr,
    Highest,
    OverCells,
    expr_of,
    first_of,
    fraction,
    gauge,
    increase,
    mean_of,
    rate,
    ratio,
    setting,
    share,
)
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, UP, declare, procedure
from kvscope.signals.samples import SEND_WORK, Samples

LIMITS = {
    "kv_bound_step_share": ("sched.kv_bound_steps", "a request waited for KV blocks"),
    "cap_bound_step_share": ("sched.cap_bound_steps", "a request waited while the most that may run ran"),
    "budget_bound_step_share": ("sched.budget_bound_steps", "all tokens a step may compute were used, with more to do"),
    "deferred_step_share": ("sched.deferred_steps", "requests waited for reasons other than capacity only"),
}
"""Signal → the counter of steps it reads and what happened in them; one step counts for one limit at most."""
_STEP_SHARES = {
    name: declare(
        name,
        share(metric, "batch.steps", "no step ran in this segment"),
        NEITHER,
        f"Share of steps in which {what}.",
    )
    for name, (metric, what) in LIMITS.items()
}
_TOLD = setting("sched.max_running")
CAP = first_of(_TOLD, Highest("sched.running"))
"""The most that may run; where nobody says it, the most that was seen running."""
_NO_TOKEN = "no token was generated in this segment"

declare("generation_tokens_per_s", rate("tokens.generated"), UP, "Output tokens per second.", label="throughput")
declare("prompt_tokens_per_s", rate("tokens.prompt"), UP, "Prompt tokens per second, prefix hits included.")
declare(
    "prefilled_tokens_per_s",
    rate("tokens.prefilled"),
    NEITHER,
    "Prompt tokens computed per second; cached ones left out.",
    label="prefilled",
)
declare("requests_per_s", rate("requests.finished"), UP, "Requests finished per second.")
declare(
    "work_per_s",
    first_of(
        rate("tokens.generated"),
        rate("requests.finished"),
        expr_of(1.0) / mean_of("latency.tpot"),
        expr_of(1.0) / mean_of("latency.e2e"),
        expr_of(1.0) / mean_of("latency.ttft"),
        says=(
            "",
            "",
            "inferred: one over the time of a token",
            "inferred: one over the time of a request",
            "inferred: one over the time to the first token",
        ),
    ),
    UP,
    "Output tokens a second, else requests a second, else one over the time that one of them takes.",
    unit="1/s",
)
declare(
    "prompt_pace",
    first_of(
        rate("tokens.prompt"),
        expr_of(1.0) / mean_of("latency.ttft"),
        expr_of(1.0) / mean_of("latency.e2e"),
        says=("", "inferred: one over the time to the first token", "inferred: one over the time of a request"),
    ),
    UP,
    "Prompt tokens a second, else one over the time to the first token, or of a request.",
    unit="1/s",
)
declare(
    "cap_is_known",
    first_of(_TOLD / _TOLD, 1 - setting("config.stated"), gauge("sched.running") - gauge("sched.running") + 1.0),
    NEITHER,
    "1 where a limit on running requests is told, or can be seen in how many run over time; 0 in single figures.",
    unit="flag",
)
running = declare(
    "running_requests", gauge("sched.running"), NEITHER, "Requests running, time average.", label="running"
)
declare("waiting_requests", gauge("sched.waiting"), DOWN, "Requests waiting, time average.", label="waiting")
declare(
    "deferred_requests",
    gauge("sched.deferred"),
    DOWN,
    "Requests waiting for a reason other than capacity, time average.",
)
declare(
    "fetching_requests", gauge("sched.fetching"), NEITHER, "Waiting requests whose KV is being loaded, time average."
)


def _unevenness(what: Expr, of: str = "replica") -> Expr:
    most = OverCells(what, of, "highest")
    even = most / OverCells(what, of, "most_over_mean")
    return (most - even) * (most - even) / even


declare(
    "running_unevenness",
    first_of(
        _unevenness(gauge("sched.running")),
        _unevenness(increase("router.requests"), "worker"),
        _unevenness(increase("router.requests")),
        says=("", "counted: requests sent to each worker", "counted: requests sent to each replica"),
    ),
    DOWN,
    "Square of what the busiest replica runs (or was sent) above an equal share, over that share: dealt at random it "
    "stays below 9.",
    unit="x",
)
declare("preemptions", increase("sched.preemptions"), DOWN, "Running requests put back, in this segment.")
declare("preemptions_per_s", rate("sched.preemptions"), DOWN, "Running requests put back per second.")
declare(
    "preempted_per_request",
    first_of(
        rate("sched.preemptions") / rate("requests.finished"),
        rate("tokens.generated") * 0.0,
        says=("", "inferred: none is counted"),
    ),
    DOWN,
    "Running requests put back / requests finished; none where nobody counts them.",
    unit="x",
)
declare("rejections_per_s", rate("sched.rejections"), DOWN, "Requests turned away per second.")
demand_factor = declare(
    "demand_factor",
    ratio(("sched.running", "sched.waiting"), "sched.running", "x", "nothing was running in this segment"),
    NEITHER,
    "(Running + waiting) / running: by how much concurrency could grow before the queue is empty.",
)
declare(
    "running_cap_share",
    gauge("sched.running").during(BUSY) / CAP,
    NEITHER,
    "Running requests / the most that may run. Where no cap is reported: against the most ever seen running.",
    unit="ratio",
)
declare(
    "cap_bound_share",
    # A gauge is read after a step, when requests that it ended no longer run; the scheduler saw them.
    first_of(
        _STEP_SHARES["cap_bound_step_share"],
        fraction(RUNNING.at_least(CAP) & RUNNING.above(0) & QUEUED).during(BUSY),
    ),
    NEITHER,
    "Share of the steps, else of the busy time, in which requests waited while as many ran as may run.",
)
declare(
    "busy_sample_share",
    first_of(share("time.step", ("time.step", "time.idle"), "no time was counted in this segment"), fraction(BUSY)),
    NEITHER,
    "Share of the time (of the samples, where idle time is not told) in which any request was there.",
)
_grown, _fixed = Clip(demand_factor, 1.0), Clip(step_headroom_share, 0.0, 1.0)
declare(
    "batch_growth_gain",
    _grown / (_fixed + _grown * (1 - _fixed)),
    UP,
    "Throughput if all that wait ran too / now: a step grows by what it does for each request only.",
    unit="x",
)
declare(
    "decode_turns",
    running / ratio("tokens.generated", "batch.decode_steps", "tokens", _NO_TOKEN),
    DOWN,
    "Running requests / output tokens of a decode step: how much larger the batch is if nobody waits for a turn.",
    unit="x",
)
declare(
    "token_wait_share",
    Clip(1 - ratio("time.decode", "batch.decode_steps", "s") / mean_of("latency.tpot"), 0.0),
    DOWN,
    "Share of the time between a request's tokens that is no decode step: mostly prefill of others.",
    unit="ratio",
)
declare(
    "prefilled_per_generated",
    ratio("tokens.prefilled", "tokens.generated", "x", _NO_TOKEN),
    NEITHER,
    "Prompt tokens computed per output token: how much of the work is prefill.",
)
declare(
    "recomputed_share",
    share("tokens.recomputed", "tokens.prefilled", "no prompt token was computed in this segment"),
    DOWN,
    "Tokens recomputed after a preemption / prompt tokens computed.",
)
declare(
    "spec_accepted_share",
    share("spec.accepted_tokens", "spec.draft_tokens", "no token was proposed in this segment"),
    UP,
    "Tokens proposed by speculative decoding that were right / all proposed.",
)


@procedure(
    "step_token_turns",
    unit="x",
    reads=("sched.running", "batch.tokens_per_step"),
    better=DOWN,
    help="Running requests / tokens of a step: above 1 requests take turns although all of them could go on.",
)
def step_token_turns(samples: Samples) -> Reading | Missing:
    """Compare step by step: a step of a prompt's many tokens must not hide the others."""
    rows = samples.together("sched.running", "batch.tokens_per_step")
    if isinstance(rows, Missing):
        return rows
    busy = [running / tokens for _, running, tokens in rows if running > 0 and tokens > 0]
    if len(busy) < 3:
        return Missing("nothing was running in this segment", SEND_WORK)
    count = min(bm.BATCHES, len(busy))
    groups = [busy[len(busy) * i // count : len(busy) * (i + 1) // count] for i in range(count)]
    value, error = bm.mean_and_error([sum(group) / len(group) for group in groups])
    return Reading(value, error, "x", "measured", count, len(busy))
