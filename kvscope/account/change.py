"""Before and after by physics: what a change of KV bytes must do to a token, what it did, and what that means.

- ``as_physics``   the time fell as the bytes did
- ``no_matter``    KV was never a large enough part of a step for its bytes to show
- ``hidden``       the time stood still and less than half of it is explained: something else (the host, graphs that are
  off) takes the step
- ``form_costs``   the time rose, or fell clearly less than it must: the new form costs more than it saves
- ``cannot_tell``  with what is lacking

Expected is a band. Least: the seconds of KV saved at the peak rate, shared blocks read once. Most: KV's share of the
bound is KV's share of the time, each request reading its own. Two pages alone give the widest band there is, from
nothing to the share of bytes that went, and a lower end of the factor by which reading KV became slower per byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvscope.account.account import known_facts
from kvscope.account.facts import NO_FACTS, Facts
from kvscope.errors import UsageError
from kvscope.floor import Floor
from kvscope.signals.floor import TokenLevel, token_level
from kvscope.signals.intervals import Intervals, intervals_of
from kvscope.signals.limits import busy_shares
from kvscope.signals.reading import Missing
from kvscope.signals.samples import Samples
from kvscope.signals.steps import running_of
from kvscope.signals.token_time import MEASURED
from kvscope.store import Segment, Store

Verdict = Literal["as_physics", "no_matter", "hidden", "form_costs", "cannot_tell"]
SLACK = 0.05
"""Of a token's time: what two runs differ by at the same load, with batch and lengths drifting."""
MATTERS = 0.08
"""The most that KV could save must be more than this, or nothing can be told."""
EXPLAINED = 0.5
"""Share of the step that its bound must explain for a step that stands still to be called slower per byte."""
CHANGED = 0.05
"""A change of KV bytes per token below this is none."""
LIKE = 0.10
"""Batch and context of two runs may differ by this."""
PROMPTS = 0.1
"""Prompts between tokens may take up to this share of a token before they can explain a change."""


@dataclass(frozen=True, slots=True)
class Change:
    """Relative changes (-0.5 is half); ``expected``: (least, most), both at most 0; ``factor``: (low, high or None)."""

    kv_bytes: float
    kv_bytes_from: str
    expected: tuple[float, float]
    measured: float
    """Of a decode step with no prompt beside it; ``token`` is the mean time per output token."""
    token: float | None
    throughput: float | None
    verdict: Verdict
    factor: tuple[float, float | None] | None = None
    excluded: tuple[str, ...] = ()
    """Other causes, each with the number that excludes it."""
    open: tuple[str, ...] = ()
    """What could explain it as well, or is lacking."""
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds of a token by part, before and after: where the difference lies, if both sides count their steps."""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Side:
    cut: Intervals
    token: TokenLevel
    throughput: float | None


def change(store: Store, before: Segment, after: Segment, facts: Facts = NO_FACTS) -> Change | None:
    """Return what physics says of two segments; None where KV bytes did not change, or nobody says that they did."""
    facts = known_facts(store, facts)
    sides = [_side(store, segment, facts) for segment in (before, after)]
    if sides[0] is None or sides[1] is None:
        return None
    first, second = sides[0], sides[1]
    said = kv_ratio(first.cut, second.cut)
    if said is None or abs(said[0] - 1) < CHANGED or not first.token.step_s or not second.token.step_s:
        return None
    ratio, source = said
    measured = second.token.step_s / first.token.step_s - 1
    excluded, open_ = _rivals(first, second)
    floors = (first.token.floor, second.token.floor)
    parts = _parts(first.token, second.token)
    factor: tuple[float, float | None] | None
    if "kv" in parts and parts["kv"][0] > 0:
        share = parts["kv"][0] / first.token.step_s
        expected = (-share * (1 - ratio), -share * (1 - ratio))
        slower = parts["kv"][1] / parts["kv"][0] / ratio
        factor, name = (slower, slower), verdict(measured, expected, 1.0)
    elif floors[0] is not None and floors[1] is not None:
        expected = expected_change(first.token.step_s, floors[0], ratio)
        factor = slower_per_byte(first.token.step_s, second.token.step_s, floors[0], ratio)
        name = verdict(measured, expected, floors[0].most_s / first.token.step_s)
    else:
        # The rest of a step takes some time, too: reading KV became slower by at least this.
        expected, factor = (0.0, ratio - 1), ((1 + measured) / ratio, None)
        name = _from_pages(measured, ratio)
    if ratio > 1:
        name, open_ = "cannot_tell", (*open_, "KV bytes grew: physics judges the change that saved them")
    elif name == "cannot_tell":
        open_ = (*open_, "how large a part of a step KV is: --config PATH and --gpu NAME tell")
    if any(text.startswith(_UNLIKE) for text in open_):
        name = "cannot_tell"
    return Change(
        kv_bytes=ratio - 1,
        kv_bytes_from=source,
        expected=expected,
        measured=measured,
        token=_relative(first.token.token_s, second.token.token_s, _tpot(first), _tpot(second)),
        throughput=_relative(first.throughput, second.throughput),
        verdict=name,
        factor=factor if name == "form_costs" else None,
        excluded=excluded,
        open=open_,
        parts=parts,
        sources=("each part counted",) if parts else facts.sources if floors[0] is not None else ("two pages alone",),
    )


def _parts(before: TokenLevel, after: TokenLevel) -> dict[str, tuple[float, float]]:
    """Return seconds of a token by part, before and after, where both sides count them."""
    if before.known not in MEASURED or after.known not in MEASURED or before.shares is None or after.shares is None:
        return {}
    return {
        part: (share * before.token_s, after.shares[part] * after.token_s)
        for part, share in before.shares.items()
        if share or after.shares[part]
    }


def expected_change(step_s: float, before: Floor, ratio: float) -> tuple[float, float]:
    """Return the least and the most change of a step of ``step_s`` when KV bytes become ``ratio`` of what they were."""
    other = before.weights_s + before.index_s
    # More KV than there is time beside the rest cannot have been waited for: a shared prefix, or cache above memory.
    most_kv = min(before.kv_s[1], max(step_s - other, before.kv_s[0]))
    saved = (before.kv_s[0] * (1 - ratio) / step_s, most_kv / (most_kv + other) * (1 - ratio))
    return -min(saved), -max(saved)


def slower_per_byte(before_s: float, after_s: float, before: Floor, ratio: float) -> tuple[float, float | None] | None:
    """Return how many times fewer KV bytes a second are read than before: (at least, at most).

    All of the change is counted as reading. The rest of the step is at least the floor of weights and index, at most
    what KV's own floor leaves; where a prefix is shared that is open.
    """
    other = before.weights_s + before.index_s
    most_kv = min(before.kv_s[1], max(before_s - other, before.kv_s[0]))
    shared = before.kv_s[1] > (1 + CHANGED) * before.kv_s[0]
    found = [
        (after_s - rest) / (before_s - rest) / ratio
        for rest in (other, max(other, before_s - most_kv))
        if before_s > rest and after_s > rest
    ]
    if not found:
        return None
    return min(found), None if shared else max(found)


def verdict(measured: float, expected: tuple[float, float], explained: float) -> Verdict:
    """Judge a change of a pure step against the band; ``explained``: the bound's share of the step before."""
    least, most = expected
    if measured > SLACK:
        return "form_costs"
    if -most < MATTERS:
        return "no_matter"
    if measured <= least + SLACK and measured < -SLACK / 2:
        return "as_physics"
    if explained < EXPLAINED and measured > -SLACK - 0.01:
        return "hidden"
    return "form_costs"


def split(contexts: Sequence[float], before_s: Sequence[float], after_s: Sequence[float]) -> tuple[float, float] | None:
    """Return (seconds per token of context before / after) from two or more contexts: what is per byte, not per step.

    One pair of runs cannot tell "slower per byte" from "a cost every step"; the growth with context can.
    """
    if len(contexts) < 2 or contexts[-1] <= contexts[0]:
        return None
    reach = contexts[-1] - contexts[0]
    slopes = [(times[-1] - times[0]) / reach for times in (before_s, after_s)]
    return (slopes[0], slopes[1]) if min(slopes) > 0 else None


def kv_ratio(before: Intervals, after: Intervals) -> tuple[float, str] | None:
    """Return KV bytes per token after / before and where from; None where nobody tells or the form is the same."""
    bits = _settings(before, after, "config.kv_bits")
    if bits is not None:
        return bits, "bits of the KV type"
    dtypes = [cut.window.segment.tags.get("dtype", "") for cut in (before, after)]
    if dtypes[0] and dtypes[0] == dtypes[1]:
        return None
    for metric in ("kv.bytes_per_token_assumed", "kv.bytes_per_token_measured"):
        bytes_ = _settings(before, after, metric)
        if bytes_ is not None and bytes_ != 1:
            return bytes_, "bytes per token that the engine tells"
    capacity, memory = (_settings(before, after, metric) for metric in ("kv.capacity_tokens", "kv.reserved_bytes"))
    # A pool of another size is no other form: somebody must say that the type changed, or that the memory did not.
    if capacity is not None and abs(capacity - 1) >= CHANGED:
        if memory is not None:
            return memory / capacity, "capacity in tokens and the pool's bytes"
        if all(dtypes):
            return 1 / capacity, "capacity in tokens, the memory taken as equal"
    stored = [_bits(name) for name in dtypes]
    return (stored[1] / stored[0], "the KV types' names") if stored[0] and stored[1] else None


def _settings(before: Intervals, after: Intervals, metric: str) -> float | None:
    """Return after / before of a value that each side says within its own segment."""
    values = []
    for cut in (before, after):
        gauge = cut.gauge(metric)
        if not gauge or gauge[-1] <= 0:
            return None
        values.append(gauge[-1])
    return values[1] / values[0]


def _bits(name: str) -> float:
    from kvscope.plan import forms

    try:
        pair = forms.KvForms.named("bf16" if name == "auto" else name)
    except UsageError:
        return 0.0
    return 4.0 * (pair.key.bytes_of(128) + pair.value.bytes_of(128)) / 128


def _side(store: Store, segment: Segment, facts: Facts) -> _Side | None:
    cut = intervals_of(Samples(store, segment))
    if isinstance(cut, Missing):
        return None
    made, running = cut.total("tokens.generated"), running_of(cut)
    busy = busy_shares(cut, running) if running is not None else [1.0] * len(cut.times)
    busy_s = sum(weight * share for weight, share in zip(cut.weights(), busy, strict=True))
    return _Side(cut, token_level(cut, facts), made / busy_s if made and busy_s else None)


_UNLIKE = "the load differs"


def _rivals(before: _Side, after: _Side) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the numbers exclude, and what they leave open."""
    excluded: list[str] = []
    open_: list[str] = []
    _load(before, after, excluded, open_)
    shares = [side.token.shares or {} for side in (before, after)]
    prompts = max(one.get("prefill_between", 0.0) for one in shares)
    text = f"prompts between tokens take {100 * prompts:.0f} % of a token"
    (excluded if prompts < PROMPTS else open_).append(text)
    waits = [_mean(side.cut.gauge("sched.waiting")) for side in (before, after)]
    usage = [_mean(side.cut.gauge("kv.usage_ratio")) for side in (before, after)]
    if waits[0] is not None and waits[1] is not None and max(waits[0], waits[1]) < 1:
        used = f", {100 * max(usage[0], usage[1] or 0.0):.0f} % of it used" if usage[0] is not None else ""
        excluded.append(f"not capacity: nobody waits for the pool{used}")
    busy = _mean(after.cut.gauge("gpu.util"))
    if after.token.known in MEASURED:
        excluded.append(f"the host: counted, {100 * shares[1].get('host', 0.0):.0f} % of a token")
    elif busy is None:
        open_.append("the host: nobody tells how busy the device is")
    else:
        (excluded if busy >= 0.8 else open_).append(f"the host: the device is busy {100 * busy:.0f} % of the time")
    return tuple(excluded), tuple(open_)


def _load(before: _Side, after: _Side, excluded: list[str], open_: list[str]) -> None:
    was, now = before.token.load, after.token.load
    if was is None or now is None:
        open_.append("whether the load is the same: nobody tells batch and context")
        return
    told = [f"{one.requests:.3g} requests of {one.context:.5g} tokens" for one in (was, now)]
    alike = abs(now.requests / was.requests - 1) <= LIKE and abs(now.context / was.context - 1) <= LIKE
    if alike:
        excluded.append(f"not load: {told[0]} a step before, {told[1]} after")
    else:
        open_.append(f"{_UNLIKE}: {told[0]} a step before, {told[1]} after")


def _from_pages(measured: float, ratio: float) -> Verdict:
    """Judge without a bound: a rise is a rise, a fall by no more than the bytes is as physics allows."""
    if measured > SLACK:
        return "form_costs"
    return "as_physics" if ratio - 1 - SLACK <= measured < -SLACK else "cannot_tell"


def _tpot(side: _Side) -> float | None:
    return side.cut.mean_of("latency.tpot")


def _mean(values: Sequence[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _relative(
    was: float | None, now: float | None, told: float | None = None, told_now: float | None = None
) -> float | None:
    """Return now / was - 1, by what requests told where they did."""
    if told and told_now:
        return told_now / told - 1
    return now / was - 1 if was and now is not None else None
