"""Where a token's time goes, by counters inside the engine's step or by a trace; else only what lies between the steps.

A token waits for its own decode step and for the prompts that are prefilled between two of them. Of a step the parts
are: weights (linear layers), KV read (attention, gathering, decompression, moves between tiers), the sparse index, the
host; the rest is unknown, because nobody counted it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.signals.intervals import Intervals, once
from kvscope.signals.steps import StepTimes, step_times

PARTS = ("weights", "kv", "index", "host", "prefill_between", "stalls", "below_bound", "unknown")
_COUNTED = {
    "weights": ("time.linear",),
    "kv": ("time.attend", "time.gather", "decompress.time", "tier.transfer_time"),
    "index": ("sparse.index_time",),
    "host": ("time.host", "time.sample"),
    "stalls": ("tier.stall_time",),
}
"""Part → the counters that make it up."""
MEASURED = ("counted", "sampled")
MOSTLY = 0.9
"""Above this share of decode time that was timed by part, the parts are counted."""


@dataclass(frozen=True, slots=True)
class TokenTime:
    """``seconds`` by part, of one token; ``known``: ``counted`` (inside the step), ``sampled`` (inside some
    steps, the others taken alike) or ``inferred`` (between steps).
    """

    seconds: dict[str, float]
    known: str
    step_s: float
    """A decode step by itself."""
    batch: float | None = None
    fitted: bool = False

    @property
    def token_s(self) -> float:
        return sum(self.seconds.values())

    def shares(self) -> dict[str, float]:
        """Return the parts as shares of 1."""
        whole = self.token_s
        return {part: value / whole for part, value in self.seconds.items()}


@once
def token_time(cut: Intervals) -> TokenTime | None:
    """Return the parts of a token's time; None where neither steps nor gaps between tokens are told."""
    counted = _counted(cut)
    if counted is not None:
        return counted
    timed = step_times(cut)
    return None if timed is None else _between(timed)


def _between(timed: StepTimes) -> TokenTime:
    seconds = dict.fromkeys(PARTS, 0.0)
    seconds |= {"prefill_between": timed.between_s, "stalls": timed.stalls_s, "unknown": timed.pure_s}
    return TokenTime(seconds, "inferred", timed.pure_s, timed.batch, timed.fitted)


def _counted(cut: Intervals) -> TokenTime | None:
    steps = cut.total("batch.decode_steps")
    decode = cut.total("time.decode")
    step, prefill = cut.total("time.step"), cut.total("time.prefill")
    if decode is None and step is not None and prefill is not None:
        decode = step - prefill
    parts = {part: [cut.total(metric) for metric in metrics] for part, metrics in _COUNTED.items()}
    if not steps or not decode or parts["weights"] == [None]:
        return None
    seconds = dict.fromkeys(PARTS, 0.0)
    for part, values in parts.items():
        seconds[part] = sum(value for value in values if value is not None) / steps
    named = sum(seconds.values())
    seconds["unknown"] = max(0.0, decode / steps - named)
    seconds["prefill_between"] = _prefill_beside_decode(cut) / steps
    made = cut.total("tokens.generated")
    timed = cut.total("time.decode_timed")
    known = "counted" if timed is None or timed > MOSTLY * decode else "sampled"
    return TokenTime(seconds, known, decode / steps, made / steps if made else None)


def _prefill_beside_decode(cut: Intervals) -> float:
    """Return seconds of prefill for which requests that decode had to wait: those in steps that did both."""
    prefill, steps = cut.grown("time.prefill"), cut.grown("batch.steps")
    decode, mixed = cut.grown("batch.decode_steps"), cut.grown("batch.mixed_steps")
    if prefill is None or steps is None or decode is None or mixed is None:
        return 0.0
    spent = 0.0
    for index, seconds in enumerate(prefill):
        both, alone = mixed[index], max(0.0, steps[index] - decode[index])
        spent += seconds * both / (both + alone) if both + alone else 0.0
    return spent
