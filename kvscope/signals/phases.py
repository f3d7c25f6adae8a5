"""Where a request's time goes, and the engine's: queue, prefill, decode; idle. Counted where an engine counts it.

Of requests the seconds are those of the ones that ended in the segment. What a page calls decode includes waiting after
a preemption: where there were any, the waiting that the queue's gauge saw beyond the queue's own seconds is taken out.
Of the engine the split is the weakest of all: a step with a prompt in it is seen only in what it adds to the gaps
between tokens, so without counters of the engine's own it is good to some 15 points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope.signals.intervals import Intervals, intervals_of
from kvscope.signals.limits import busy_shares
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import procedure
from kvscope.signals.samples import Samples
from kvscope.signals.steps import prompt_tokens, running_of, step_times, waiting_of

REQUEST_PARTS = ("queue", "prefill", "decode", "other", "unknown")
ENGINE_PARTS = ("prefill", "decode", "idle", "unknown")


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds by part, and how they are known: ``counted`` or ``inferred``."""

    seconds: dict[str, float]
    known: str

    def shares(self) -> dict[str, float]:
        """Return the parts as shares of 1."""
        whole = sum(self.seconds.values())
        return {part: value / whole for part, value in self.seconds.items()}


def request_phases(cut: Intervals) -> Phases | None:
    """Split the seconds of the requests that ended; by the gauges where none did."""
    queued_s = _integral(cut, waiting_of(cut))
    queue, prefill, decode, known = _reported(cut, queued_s)
    if queue + prefill + decode <= 0:
        return _by_gauges(cut, queued_s)
    if cut.total("sched.preemptions") and known == "counted":
        again = min(decode, max(0.0, queued_s - queue))
        if again:
            queue, decode, known = queue + again, decode - again, "inferred"
    whole = cut.sum_of("latency.e2e")
    other = 0.0 if whole is None else max(0.0, whole - queue - prefill - decode)
    return Phases({"queue": queue, "prefill": prefill, "decode": decode, "other": other, "unknown": 0.0}, known)


def _reported(cut: Intervals, queued_s: float) -> tuple[float, float, float, str]:
    """Return seconds of queue, prefill and decode and how they are known; zeros where nothing was reported."""
    queue, prefill, decode = (
        cut.sum_of("sched.queue_time"),
        _first(cut.sum_of("latency.prefill_time"), cut.total("time.prefill_requests")),
        _first(cut.sum_of("latency.decode_time"), cut.total("time.decode_requests")),
    )
    if prefill is not None and decode is not None:
        return (queued_s if queue is None else queue), prefill, decode, "counted" if queue is not None else "inferred"
    first, whole = cut.sum_of("latency.ttft"), cut.sum_of("latency.e2e")
    if first is not None and whole is not None:
        waited = min(first, queued_s) if queue is None else min(first, queue)
        return waited, first - waited, max(0.0, whole - first), "counted" if queue is not None else "inferred"
    running, token_s, tokens = (
        cut.sum_of("latency.inference_time"),
        cut.mean_of("latency.tpot"),
        cut.total("tokens.generated"),
    )
    if running is not None and token_s is not None and tokens is not None:
        decoding = min(running, token_s * tokens)
        return (queued_s if queue is None else queue), running - decoding, decoding, "inferred"
    return 0.0, 0.0, 0.0, "inferred"


def _by_gauges(cut: Intervals, queued_s: float) -> Phases | None:
    running = running_of(cut)
    ran_s = 0.0 if running is None else _integral(cut, running)
    if queued_s + ran_s <= 0:
        return None
    return Phases({"queue": queued_s, "prefill": 0.0, "decode": 0.0, "other": 0.0, "unknown": ran_s}, "inferred")


def engine_phases(cut: Intervals) -> Phases | None:
    """Split the watched time of the engine (of the mean core, where there are several); None where nobody tells."""
    counted = _engine_counted(cut)
    if counted is not None:
        return counted
    running = running_of(cut)
    if running is None:
        return None
    busy_s = sum(weight * share for weight, share in zip(cut.weights(), busy_shares(cut, running), strict=True))
    idle_s, prompts = max(0.0, cut.watched_s - busy_s), prompt_tokens(cut)
    decode_s = _decoding(cut, busy_s)
    seconds = {"prefill": 0.0, "decode": busy_s, "idle": idle_s, "unknown": 0.0}
    if busy_s <= 0 or (prompts is not None and not any(prompts)):
        return Phases(seconds, "inferred")
    steps_s = cut.total("time.prefill")
    spent = _first(steps_s, cut.sum_of("latency.prefill_time"), cut.total("time.prefill_requests"))
    if prompts is None or (decode_s is None and spent is None):
        return Phases({**seconds, "decode": 0.0, "unknown": busy_s}, "inferred")
    # Prefill time of requests counts overlapping prompts twice: never too little.
    room = busy_s if decode_s is None else max(0.0, busy_s - decode_s)
    prefill_s = room if spent is None else min(room, spent)
    return Phases({**seconds, "prefill": prefill_s, "decode": busy_s - prefill_s}, "inferred")


def _engine_counted(cut: Intervals) -> Phases | None:
    step, prefill, decode = cut.total("time.step"), cut.total("time.prefill"), cut.total("time.decode")
    if step is None and decode is not None and prefill is not None:
        step = prefill + decode
    if step is None or (prefill is None and decode is None):
        return None
    prefill = step - (decode or 0.0) if prefill is None else prefill
    idle = cut.total("time.idle")
    idle = max(0.0, cut.watched_s - step) if idle is None else idle
    left = max(0.0, step - prefill)
    return Phases({"prefill": min(prefill, step), "decode": left, "idle": idle, "unknown": 0.0}, "counted")


def _decoding(cut: Intervals, busy_s: float) -> float | None:
    """Return seconds that steps would have taken without prompts: as many as were made, each as long as a pure one."""
    forward = cut.sum_of("latency.step")
    if forward is not None:
        return min(busy_s, forward)
    timed, steps, generated = step_times(cut), cut.total("batch.steps"), cut.total("tokens.generated")
    if timed is None:
        return None
    if steps is None:
        steps = generated / timed.batch if generated and timed.batch else None
    return None if steps is None else min(busy_s, steps / cores(cut) * (timed.pure_s + timed.stalls_s))


def cores(cut: Intervals) -> int:
    """Return how many engine cores count steps on one page (data parallel)."""
    return max(1, len(cut.window.slices("batch.steps")))


def _integral(cut: Intervals, values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(cut.weights(), values, strict=False))


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


_REQUEST_NEEDS = ("sched.queue_time", "latency.prefill_time", "latency.decode_time", "latency.e2e", "sched.waiting")
_ENGINE_NEEDS = ("time.step", "time.prefill", "sched.running", "latency.itl", "batch.steps")


def _share(split: Callable[[Intervals], Phases | None], part: str) -> Callable[[Samples], Reading | Missing]:
    def formula(window: Samples) -> Reading | Missing:
        cut = intervals_of(window)
        if isinstance(cut, Missing):
            return cut
        found = split(cut)
        if found is None:
            return Missing("no request ran in this segment", "send the engine some work")
        how = (
            "measured: counted by the engine"
            if found.known == "counted"
            else "inferred: gauges and gaps between tokens"
        )
        return Reading(found.shares()[part], 0.0, "ratio", how)

    return formula


for _part in REQUEST_PARTS:
    procedure(
        f"request_{_part}_share",
        unit="ratio",
        reads=_REQUEST_NEEDS,
        help=f"Share of the requests' seconds spent on {'what nobody tells' if _part == 'unknown' else _part}.",
    )(_share(request_phases, _part))
for _part in ENGINE_PARTS:
    procedure(
        f"engine_{_part}_share",
        unit="ratio",
        reads=_ENGINE_NEEDS,
        help=f"Share of the engine's time: {'what nobody tells' if _part == 'unknown' else _part}.",
    )(_share(engine_phases, _part))
