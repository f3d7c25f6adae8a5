"""What a decode step takes by itself, and what prompts between tokens and stalls add: read from gaps between tokens.

A prompt is counted when its last chunk is done, so the chunks lie in the stretches before: a stretch tells a pure step
when no prompt was counted in it nor in the next one. The three parts add up to the mean gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvscope.signals.intervals import Intervals, intervals_of, once
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import procedure
from kvscope.signals.samples import WATCH_LONGER, Samples

ALONE = 0.02
"""Prompt tokens per generated token below which a stretch counts as free of prompts: far below one real prompt."""
ENOUGH = 0.15
"""Share of the gaps that pure stretches must hold to be believed; else the pure step is fitted."""
ENOUGH_GAPS = 50
"""Fewer gaps do not show where they lie together."""
RIDGE_TOKENS = 512
"""Prompt tokens that take as long to compute as a step's fixed part (reading the weights) at most: the peak arithmetic
of a device over its bandwidth, in tokens; the highest of the devices known here is below it."""
SLOW = 2.0
"""Gaps so many times a pure step's, just before a prompt is counted, are its chunks': far above noise of a step."""
_NEEDS = ("latency.itl", "tokens.generated", "batch.steps", "batch.tokens_per_step", "tokens.prefilled")
_NO_GAPS = Missing("no gap between tokens was counted in this segment", "send the engine some work")


_Row = tuple[float, float, float, bool, int]
"""Gaps, their mean, prompt tokens, whether it is pure, which stretch."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a token: ``pure_s`` + ``between_s`` + ``stalls_s`` = ``token_s``; ``batch`` tokens a step decodes."""

    token_s: float
    pure_s: float
    between_s: float
    stalls_s: float
    batch: float | None
    fitted: bool
    gaps: float


@once
def prompt_tokens(cut: Intervals) -> list[float] | None:
    """Return the prompt tokens computed in each stretch: scheduled ones, else those counted as computed.

    A step's tokens are the ones it decodes and the prompt's; a prompt's first output token comes out of its prefill.
    """
    scheduled, generated = cut.grown("batch.tokens_per_step.sum"), cut.grown("tokens.generated")
    if scheduled is not None and generated is not None:
        firsts = cut.grown("latency.ttft.count") or [0.0] * len(scheduled)
        rows = zip(scheduled, generated, firsts, strict=True)
        return [max(0.0, tokens - made + first) for tokens, made, first in rows]
    computed = cut.grown("tokens.prefilled")
    if computed is not None:
        return computed
    prompt, hits = cut.grown("tokens.prompt"), cut.grown("prefix.hits")
    if prompt is None or hits is None:
        return prompt
    return [max(0.0, all_ - found) for all_, found in zip(prompt, hits, strict=True)]


@once
def steps_of(cut: Intervals) -> list[float] | None:
    """Return the steps made in each stretch: counted, else the tokens generated over the requests that ran."""
    counted, generated, running = cut.grown("batch.steps"), cut.grown("tokens.generated"), running_of(cut)
    if counted is not None or generated is None or running is None:
        return counted
    return [made / max(1.0, (running[i] + running[i + 1]) / 2) for i, made in enumerate(generated)]


@once
def step_times(cut: Intervals) -> StepTimes | None:
    """Split the mean gap between tokens; None where no gap was counted."""
    sums, counts = cut.grown("latency.itl.sum"), cut.grown("latency.itl.count")
    if sums is None or counts is None or sum(counts) <= 0:
        return None
    prompts, generated = prompt_tokens(cut), cut.grown("tokens.generated")
    if prompts is None or generated is None:
        mean = sum(sums) / sum(counts)
        return StepTimes(mean, mean, 0.0, 0.0, None, True, sum(counts))
    alone = [prompt <= ALONE * made for prompt, made in zip(prompts, generated, strict=True)]
    rows = [
        (counts[i], sums[i] / counts[i], prompts[i], alone[i] and (i + 1 == len(alone) or alone[i + 1]), i)
        for i in range(len(counts))
        if counts[i] > 0 and cut.lengths[i] > 0
    ]
    gaps = sum(row[0] for row in rows)
    if gaps <= 0:
        return None
    mean = sum(row[0] * row[1] for row in rows) / gaps
    pure = [row for row in rows if row[3]]
    if sum(row[0] for row in pure) >= ENOUGH * gaps:
        chunks = _under_prompts(cut, rows, middle([(row[0], row[1]) for row in pure]))
        rows = [(*row[:3], row[3] and row[4] not in chunks, row[4]) for row in rows]
        pure = [row for row in rows if row[3]] or pure
        step_s = middle([(row[0], row[1]) for row in pure])
        between = max(0.0, sum(row[0] * (row[1] - step_s) for row in rows if not row[3]) / gaps)
        stalls = max(0.0, sum(row[0] * (row[1] - step_s) for row in pure) / gaps)
        batch = _batch(cut, [row[4] for row in pure])
        return StepTimes(mean, max(0.0, mean - between - stalls), between, stalls, batch, False, gaps)
    step_s = min(mean, _fitted(cut, rows), _least_loaded(cut, rows), _lower_mode(cut), mean * _fixed_most(cut, rows))
    return StepTimes(mean, step_s, mean - step_s, 0.0, _batch(cut, [row[4] for row in rows]), True, gaps)


def _under_prompts(cut: Intervals, rows: Sequence[_Row], step_s: float) -> set[int]:
    """Return the stretches in which chunks of a long prompt were computed that is counted only later.

    They lie within the time to the first token before the stretch that counts the prompt, one beside the other, and
    their gaps are ``SLOW`` times a pure step or none came at all.
    """
    firsts, waited = cut.grown("latency.ttft.count"), cut.grown("latency.ttft.sum")
    found: set[int] = set()
    if firsts is None or waited is None:
        return found
    gap = {row[4]: row[1] for row in rows}
    for index, count in enumerate(firsts):
        if count <= 0:
            continue
        begun, at = cut.times[index + 1] - waited[index] / count, index - 1
        while at >= 0 and cut.times[at + 1] > begun and gap.get(at, SLOW * step_s) >= SLOW * step_s:
            found.add(at)
            at -= 1
    return found


@once
def running_of(cut: Intervals) -> Sequence[float] | None:
    """Return the requests that run; a front end that tells no queue counts those beyond what may run, too."""
    running, cap = cut.gauge("sched.running"), cut.window.setting("sched.max_running")
    if running is None or cut.gauge("sched.waiting") is not None or isinstance(cap, Missing) or cap <= 0:
        return running
    return [min(cap, n) for n in running]


@once
def waiting_of(cut: Intervals) -> Sequence[float]:
    """Return how many wait; where a front end counts all in flight as running, those beyond what may run."""
    waiting, running = cut.gauge("sched.waiting"), cut.gauge("sched.running")
    if waiting is not None:
        return waiting
    if running is None:
        return [0.0] * len(cut.times)
    return [n - kept for n, kept in zip(running, running_of(cut) or running, strict=True)]


def middle(rows: Sequence[tuple[float, float]]) -> float:
    """Return the median of (weight, value) rows."""
    half, seen = sum(weight for weight, _ in rows) / 2, 0.0
    ordered = sorted(rows, key=lambda row: row[1])
    for weight, value in ordered:
        seen += weight
        if seen >= half:
            return value
    return ordered[-1][1]


def _batch(cut: Intervals, chosen: Sequence[int]) -> float | None:
    """Return the tokens a step generates in the chosen stretches: counted, not the gauge of running requests."""
    generated, steps = cut.grown("tokens.generated"), cut.grown("batch.steps")
    if generated is None or steps is None:
        running = running_of(cut)
        # A step yields one token at least: samples in which nothing runs lie between steps.
        return None if running is None else max(1.0, sum(running[i] for i in chosen) / len(chosen))
    taken = sum(steps[i] for i in chosen)
    return sum(generated[i] for i in chosen) / taken if taken else None


def _fitted(cut: Intervals, rows: Sequence[_Row]) -> float:
    """Return the gap at no prompt tokens: a straight line over prompt tokens per step, never below the least gap."""
    load = _loads(cut)
    points = [(n, gap, load[i]) for n, gap, _, _, i in rows]
    total = sum(n for n, _, _ in points)
    mean_gap = sum(n * gap for n, gap, _ in points) / total
    mean_load = sum(n * x for n, _, x in points) / total
    spread = sum(n * (x - mean_load) ** 2 for n, _, x in points)
    if spread <= 0:
        return mean_gap
    slope = sum(n * (gap - mean_gap) * (x - mean_load) for n, gap, x in points) / spread
    return max(min(gap for _, gap, _ in points), mean_gap - max(0.0, slope) * mean_load)


def _least_loaded(cut: Intervals, rows: Sequence[_Row]) -> float:
    """Return the median gap of the stretches with the least prompt tokens a step, in them and in the next one."""
    load = [*_loads(cut), 0.0]
    ordered = sorted(rows, key=lambda row: max(load[row[4]], load[row[4] + 1]))
    room = ENOUGH * sum(row[0] for row in rows)
    chosen: list[tuple[float, float]] = []
    for n, gap, _, _, _ in ordered:
        chosen.append((n, gap))
        room -= n
        if room <= 0:
            break
    return middle(chosen)


def buckets_of(window: Samples, metric: str) -> list[tuple[float, float]]:
    """Return (lower edge, count) of each bucket of a histogram over the segment."""
    grown: dict[float, float] = {}
    for spelt in {dict(labels)["le"] for labels in window.store.keys(f"{metric}.bucket")}:
        by = window.increase_of(f"{metric}.bucket", le=spelt)
        bound = math.inf if spelt in ("+Inf", "inf") else float(spelt)
        grown[bound] = grown.get(bound, 0.0) + (0.0 if isinstance(by, Missing) else by)
    found, low, below = [], 0.0, 0.0
    for bound in sorted(grown):
        found.append((low, max(0.0, grown[bound] - below)))
        low, below = bound, max(below, grown[bound])
    return found


def _fixed_most(cut: Intervals, rows: Sequence[_Row]) -> float:
    """Return the most that a step can be beside its prompt tokens, where every step is full of them; else 1."""
    prompts, steps = prompt_tokens(cut), steps_of(cut)
    if prompts is None or steps is None:
        return 1.0
    least = min(prompts[row[4]] / max(1.0, steps[row[4]]) for row in rows)
    return RIDGE_TOKENS / (RIDGE_TOKENS + least) if least >= RIDGE_TOKENS else 1.0


def _lower_mode(cut: Intervals) -> float:
    """Return the mean gap of the lowest bucket that holds ``ENOUGH`` of the gaps: where prompts are in every stretch,
    the gaps without one still lie together below the others.

    The sum of all gaps less those above, taken at the middle of their bucket (of the next one, into which steps that
    vary reach, at its lower edge). Never below the bucket's own middle: what lies above it is not known so well.
    """
    rows = [row for row in buckets_of(cut.window, "latency.itl") if row[1] > 0]
    edges = [low for low, _ in buckets_of(cut.window, "latency.itl")]
    whole, left, seen = sum(count for _, count in rows), cut.total("latency.itl.sum"), 0.0
    if left is None or whole < ENOUGH_GAPS:
        return math.inf
    for index, (low, count) in enumerate(rows):
        seen += count
        above = [(one, n, _upper(edges, one)) for one, n in rows[index + 1 :]]
        if seen < ENOUGH * whole or not above:
            continue
        if math.isinf(upper := _upper(edges, low)):
            return math.inf
        left -= sum(n * (one + _upper(edges, one)) / 2 for one, n in rows[:index])
        left -= sum(n * (one if one == upper or math.isinf(end) else (one + end) / 2) for one, n, end in above)
        return min(upper, max((low + upper) / 2, left / count))
    return math.inf


def _upper(edges: Sequence[float], low: float) -> float:
    return next((edge for edge in edges if edge > low), math.inf)


def _loads(cut: Intervals) -> list[float]:
    """Return prompt tokens per step of each stretch."""
    prompts, steps = prompt_tokens(cut) or [0.0] * len(cut.lengths), cut.grown("batch.steps")
    return [prompt / max(1.0, steps[i] if steps else 1.0) for i, prompt in enumerate(prompts)]


def _signal(unit: str, read: Callable[[StepTimes], float]) -> Callable[[Samples], Reading | Missing]:
    def formula(window: Samples) -> Reading | Missing:
        cut = intervals_of(window)
        if isinstance(cut, Missing):
            return cut
        found = step_times(cut)
        if found is None:
            counter = window.counter("latency.itl.count")
            return counter if isinstance(counter, Missing) else _NO_GAPS
        if found.gaps < 2:
            return Missing("fewer than two gaps between tokens in this segment", WATCH_LONGER)
        how = "inferred: fitted over prompt tokens" if found.fitted else "inferred: stretches without a prompt"
        return Reading(read(found), 0.0, unit, how, len(cut.lengths), round(found.gaps))

    return formula


_READS: tuple[tuple[str, str, str, Callable[[StepTimes], float]], ...] = (
    ("step_pure_s", "s", "A decode step with no prompt beside it.", lambda found: found.pure_s),
    (
        "prefill_between_tokens_s",
        "s",
        "What prompts add to the mean gap between tokens.",
        lambda found: found.between_s,
    ),
    (
        "prefill_gap_share",
        "ratio",
        "Share of the time between tokens that prompts of others take.",
        lambda found: found.between_s / found.token_s if found.token_s else 0.0,
    ),
    ("stall_s", "s", "What steps without a prompt take beyond the usual, on average.", lambda found: found.stalls_s),
)
for _name, _unit, _help, _read in _READS:
    procedure(_name, unit=_unit, reads=_NEEDS, help=_help)(_signal(_unit, _read))
