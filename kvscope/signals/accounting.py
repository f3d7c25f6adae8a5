"""Token-time accounting: which part of the decode time goes where. Shares sum to 1 with ``unaccounted_share``."""

from __future__ import annotations

from collections.abc import Callable

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Counter, Window

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

ACCESS = ("sparse.index_time", "time.gather", "decompress.time")
_DECODE = ("time.decode", "time.step", "time.prefill")
_NO_DECODE = "no time was spent on decode in this segment"


def decode_time(window: Window) -> Counter | Missing:
    """Return the decode time counter: as reported, else step time less prefill time."""
    reported = window.counter("time.decode")
    if isinstance(reported, Counter):
        return reported
    step, prefill = window.counter("time.step"), window.counter("time.prefill")
    if isinstance(step, Missing):
        return step
    return prefill if isinstance(prefill, Missing) else step.minus(prefill)


def _part(metric: str) -> Callable[[Window], Reading | Missing]:
    def share(window: Window) -> Reading | Missing:
        return window.ratio(window.counter(metric), decode_time(window), "ratio", _NO_DECODE)

    return share


for _name, (_metric, _what) in PARTS.items():
    signal(_name, unit="ratio", needs=(_metric, *_DECODE), help=f"Share of decode time: {_what}.")(_part(_metric))


@signal(
    "access_share",
    unit="ratio",
    needs=(*ACCESS, *_DECODE),
    help="Share of decode time spent on reaching KV before attention: index, gather and decompression.",
)
def access_share(window: Window) -> Reading | Missing:
    return window.ratio(window.total(ACCESS), decode_time(window), "ratio", _NO_DECODE)


@signal(
    "unaccounted_share",
    unit="ratio",
    needs=(*(metric for metric, _ in PARTS.values()), *_DECODE),
    help="Share of decode time that no reported part explains.",
)
def unaccounted_share(window: Window) -> Reading | Missing:
    decode = decode_time(window)
    if isinstance(decode, Missing):
        return decode
    parts = {metric: window.counter(metric) for metric, _ in PARTS.values()}
    known = [part for part in parts.values() if isinstance(part, Counter)]
    if not known:
        return Missing("no part of the decode time is reported", "probes inside the engine's step")
    left = decode.minus(known[0].plus(*known[1:]))
    reading = window.ratio(left, decode, "ratio", _NO_DECODE)
    silent = [metric for metric, part in parts.items() if isinstance(part, Missing)]
    if isinstance(reading, Reading) and silent:
        note = f"{reading.source}; includes {', '.join(silent)}"
        return Reading(reading.value, reading.error, "ratio", note, reading.batches, reading.samples)
    return reading


@signal(
    "step_headroom_share",
    unit="ratio",
    needs=("time.linear", "time.host", *_DECODE, "batch.tokens_per_step"),
    help="Share of a decode step that one more request would not lengthen: weights and host work are paid once a step.",
)
def step_headroom_share(window: Window) -> Reading | Missing:
    measured = window.ratio(window.total(("time.linear", "time.host")), decode_time(window), "ratio", _NO_DECODE)
    if isinstance(measured, Reading):
        return measured
    tokens = tokens_per_step(window)
    if isinstance(tokens, Missing):
        return tokens
    value = 1 / (1 + tokens.value / WEIGHTS_IN_TOKENS)
    error = value * value * tokens.error / WEIGHTS_IN_TOKENS
    source = f"inferred: {tokens.value:.1f} tokens per step, reading weights taken as the work of {WEIGHTS_IN_TOKENS}"
    return Reading(value, error, "ratio", source, tokens.batches, tokens.samples)


WEIGHTS_IN_TOKENS = 32
"""How many tokens' arithmetic takes as long as reading the weights once: 9 on a 2-core CPU, some 200 on a large GPU.
Low on purpose: it errs toward calling a step full.
"""


@signal(
    "tokens_per_step",
    unit="tokens",
    needs=("batch.tokens_per_step", "tokens.generated", "tokens.prefilled", "batch.steps"),
    help="Tokens computed per engine step, prefill and decode.",
)
def tokens_per_step(window: Window) -> Reading | Missing:
    page = window.ratio(
        window.counter("batch.tokens_per_step.sum"), window.counter("batch.tokens_per_step.count"), "tokens"
    )
    if isinstance(page, Reading):
        return page
    return window.ratio(window.total(("tokens.generated", "tokens.prefilled")), window.counter("batch.steps"), "tokens")


@signal(
    "decode_step_s",
    unit="s",
    needs=(*_DECODE, "batch.decode_steps"),
    help="Decode time per engine step that decoded.",
)
def decode_step_s(window: Window) -> Reading | Missing:
    steps = window.counter("batch.decode_steps")
    return window.ratio(
        decode_time(window), window.counter("batch.steps") if isinstance(steps, Missing) else steps, "s"
    )


@signal(
    "decode_s_per_token",
    unit="s",
    needs=(*_DECODE, "tokens.generated"),
    help="Decode time of the engine per output token, all requests together.",
)
def decode_s_per_token(window: Window) -> Reading | Missing:
    return window.ratio(decode_time(window), window.counter("tokens.generated"), "s", "no token was generated")


@signal("step_s", unit="s", needs=("time.step", "batch.steps"), help="Wall time of an engine step.")
def step_s(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("time.step"), window.counter("batch.steps"), "s")


@signal(
    "prefill_time_share",
    unit="ratio",
    needs=("time.prefill", "time.step"),
    help="Share of the step time spent on prefill.",
)
def prefill_time_share(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("time.prefill"), window.counter("time.step"), "ratio", "no step ran")


@signal(
    "idle_share",
    unit="ratio",
    needs=("time.idle", "time.step"),
    help="Share of the engine's time in which there was nothing to run.",
)
def idle_share(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("time.idle"), window.total(("time.idle", "time.step")), "ratio")


@signal(
    "prefill_decompress_share",
    unit="ratio",
    needs=("prefill.decompress_time", "time.prefill"),
    help="Share of prefill time spent on turning cold KV back into computable form.",
)
def prefill_decompress_share(window: Window) -> Reading | Missing:
    nothing = "no time was spent on prefill in this segment"
    return window.ratio(window.counter("prefill.decompress_time"), window.counter("time.prefill"), "ratio", nothing)
