"""Where the engine's time goes: which part of the decode time goes where, what a step takes, when nothing runs.

Shares of decode time sum to 1 with ``unaccounted_share``.
"""

from __future__ import annotations

from kvscope.signals.algebra import (
    Chosen,
    Expr,
    amount,
    amount_of_first,
    first_of,
    mean_of,
    ratio,
    share,
)
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, UP, declare, procedure
from kvscope.signals.samples import SEND_WORK, WATCH_LONGER, Samples

PARTS = {
    "host_share": ("time.host", "scheduling, preparing inputs and settling results"),
    "linear_share": ("time.linear", "reading and multiplying weights"),
    "index_share": ("sparse.index_time", "scoring representatives and choosing blocks"),
    "gather_share": ("time.gather", "collecting the chosen KV entries before attention"),
    "attend_share": ("time.attend", "attention itself"),
    "decompress_share": ("decompress.time", "turning cold KV back into computable form"),
    "transfer_share": ("tier.transfer_time", "moving KV between tiers"),
    "sample_share": ("time.sample", "choosing the next token"),
}
"""Signal → the counter it reads and what the time is spent on; in the order in which a token meets them."""
WEIGHTS_IN_TOKENS = 32
"""How many tokens' arithmetic takes as long as reading the weights once: 9 on a 2-core CPU, some 200 on a large GPU.
Low on purpose: it errs toward calling a step full.
"""
_NO_DECODE = "no time was spent on decode in this segment"
_NO_STEP = "no step ran in this segment"
DECODE = amount_of_first(amount("time.decode"), amount("time.step", less=("time.prefill",)))
"""Decode time: as reported, else step time less prefill time."""
DECODE_STEPS = amount_of_first(amount("batch.decode_steps"), amount("batch.steps"))

for _name, (_metric, _what) in PARTS.items():
    declare(_name, share(_metric, DECODE, _NO_DECODE), NEITHER, f"Share of decode time: {_what}.")

declare(
    "access_share",
    share(("sparse.index_time", "time.gather", "decompress.time"), DECODE, _NO_DECODE),
    DOWN,
    "Share of decode time spent on reaching KV before attention: index, gather and decompression.",
)


def _unaccounted(samples: Samples) -> Expr | Missing:
    parts = [metric for metric, _ in PARTS.values()]
    known = tuple(metric for metric in parts if not isinstance(samples.counter(metric), Missing))
    if not known:
        return Missing("no part of the decode time is reported", "probes inside the engine's step")
    left = amount_of_first(amount("time.decode", less=known), amount("time.step", less=("time.prefill", *known)))
    silent = [metric for metric in parts if metric not in known]
    note = f"measured; includes {', '.join(silent)}" if silent else ""
    return first_of(share(left, DECODE, _NO_DECODE), says=(note,))


declare(
    "unaccounted_share",
    Chosen(
        _unaccounted, (*(metric for metric, _ in PARTS.values()), "time.decode", "time.step", "time.prefill"), "ratio"
    ),
    NEITHER,
    "Share of decode time that no reported part explains.",
)

tokens_per_step = declare(
    "tokens_per_step",
    first_of(
        mean_of("batch.tokens_per_step"), ratio(("tokens.generated", "tokens.prefilled"), "batch.steps", "tokens")
    ),
    UP,
    "Tokens computed per engine step, prefill and decode.",
)
step_headroom_share = declare(
    "step_headroom_share",
    first_of(
        share(("time.linear", "time.host"), DECODE, _NO_DECODE),
        1 / (1 + tokens_per_step / WEIGHTS_IN_TOKENS),
        says=("", f"inferred: tokens per step, reading weights taken as the work of {WEIGHTS_IN_TOKENS}"),
    ),
    NEITHER,
    "Share of a decode step that one more request would not lengthen: weights and host work are paid once a step.",
)
declare("decode_step_s", ratio(DECODE, DECODE_STEPS, "s"), DOWN, "Decode time per engine step that decoded.")
declare(
    "decode_s_per_token",
    ratio(DECODE, "tokens.generated", "s", "no token was generated"),
    DOWN,
    "Decode time of the engine per output token, all requests together.",
    label="one output token",
)
declare("step_s", ratio("time.step", "batch.steps", "s"), DOWN, "Wall time of an engine step.")
prefill_time_share = declare(
    "prefill_time_share",
    share("time.prefill", "time.step", _NO_STEP),
    NEITHER,
    "Share of the step time spent on prefill.",
)
declare(
    "idle_share",
    share("time.idle", ("time.idle", "time.step")),
    NEITHER,
    "Share of the engine's time in which there was nothing to run.",
)
declare(
    "prefill_decompress_share",
    share("prefill.decompress_time", "time.prefill", "no time was spent on prefill in this segment"),
    DOWN,
    "Share of prefill time spent on turning cold KV back into computable form.",
)
declare(
    "alloc_stall_share",
    share("alloc.stall_time", "time.step", _NO_STEP),
    DOWN,
    "Share of the step time in which steps wait for device memory to be freed and got again.",
)


@procedure(
    "compile_time_share",
    unit="ratio",
    reads=("compile.time", "time.step", "compile.events"),
    better=DOWN,
    help="Share of the step time spent on compiling and capturing.",
    drawn=share("compile.time", "time.step", _NO_STEP),
)
def compile_time_share(samples: Samples) -> Reading | Missing:
    """Compiling comes in a few long bursts: their number, not the batches' spread, says how sure the share is."""
    spent, steps, events = (samples.counter(name) for name in ("compile.time", "time.step", "compile.events"))
    if isinstance(spent, Missing):
        return spent
    if isinstance(steps, Missing):
        return steps
    if samples.whole(steps) <= 0:
        return Missing(_NO_STEP, SEND_WORK)
    value = samples.whole(spent) / samples.whole(steps)
    count = 0.0 if isinstance(events, Missing) else samples.whole(events)
    return Reading(
        value, 2 * value / max(count, 1.0) ** 0.5, "ratio", f"measured: {count:g} compilations", 1, round(count)
    )


@procedure(
    "engine_age_s",
    unit="s",
    reads=("time.step", "time.idle"),
    help="Seconds that the engine had worked or waited when the segment began.",
)
def engine_age_s(samples: Samples) -> Reading | Missing:
    """Read what the engine's own clocks showed first."""
    step = samples.counter("time.step")
    if isinstance(step, Missing):
        return step
    first = [values[0] for name in ("time.step", "time.idle") for _, values in samples.slices(name).values()]
    if not first:
        return Missing("no step ran", WATCH_LONGER)
    return Reading(sum(first), 0.0, "s", "measured: the engine's own clock", 1, 1, "fact")
