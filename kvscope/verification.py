"""Whether an experiment's prediction came true, beyond what the numbers do by themselves while nothing is changed.

Three answers. ``confirmed``: every prediction holds, and at least one moved further than noise moves it. ``refuted``:
one of them fails. ``cannot tell``: the interval reaches across a bound. An interval is three standard errors wide on
each side and never narrower than the largest difference between two stretches in which nothing was changed (A/A).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvscope.checks import Check
from kvscope.errors import UsageError
from kvscope.finding import Evidence, Finding, Gain
from kvscope.judge import Pair, all_of, change_of, judge
from kvscope.playbook_schema import GainRule, Playbook
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Segment, Store
from kvscope.verify import held

Outcome = Literal["confirmed", "refuted", "cannot tell"]
WIDER = 1.5
"""From the two standard errors of a reading to the three that a verdict asks for."""
POWER = 1.28
"""A change so many times its interval is told apart from none four times in five (3 + 0.84 standard errors to 3)."""
PARTS = 3
"""A segment without a control is cut into so many: they too differ although nothing was changed."""
FEWEST_SAMPLES, FEWEST_BATCHES = 20, 4
"""A number from fewer has no error that could be believed, and proves no change."""
_STOOD = ("likely", "possible", "confirmed")
"""Verdicts of a finding that can be confirmed: of a cause that was not seen nothing follows."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction's outcome. ``floor`` and ``detectable`` are changes, in points or relative as the evidence's is."""

    evidence: Evidence
    floor: float | None
    detectable: float | None
    tells: bool
    """Whether it moved beyond the noise: a prediction that held all along proves nothing."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The finding with its verdict, why, and the gain measured beside the gain expected."""

    finding: Finding
    outcome: Outcome
    why: str
    predicted: tuple[Predicted, ...]
    measured_gain: float | None
    measured_error: float | None
    before: str
    after: str
    controls: tuple[str, ...]

    @property
    def gain(self) -> Gain | None:
        """What was expected."""
        return self.finding.gain


@dataclass(frozen=True, slots=True)
class Noise:
    """Stretches of one configuration: what differs between them is noise."""

    store: Store
    stretches: tuple[Segment, ...]

    def of(self, signal: str) -> float:
        """The largest difference between two stretches, in the signal's unit; 0 where fewer than two have a value."""
        readings = [Pair(self.store, one).now(signal) for one in self.stretches]
        values = [one.value for one in readings if isinstance(one, Reading)]
        return max(values) - min(values) if len(values) > 1 else 0.0


def verify_change(
    finding: Finding, rule: Playbook, store: Store, before: Segment, after: Segment, controls: Sequence[Segment] = ()
) -> Verification:
    """Judge what the finding predicted. ``controls`` are further stretches configured as ``before`` was.

    UsageError when the playbook predicts nothing.
    """
    if rule.experiment is None or not rule.experiment.predict:
        raise UsageError(f"{rule.id}: there is no experiment to verify")
    noise = Noise(store, (before, *controls) if controls else (*cut(before), *cut(after)))
    floors = [noise] if controls else [Noise(store, cut(before)), Noise(store, cut(after))]
    predicted = tuple(_predicted(check, store, before, after, floors) for check in rule.experiment.predict)
    unfit = held(rule, Pair(store, after, before))
    if not unfit and finding.verdict not in _STOOD:
        unfit = f"before the change {finding.id} was {finding.verdict.replace('_', ' ')}: there was nothing to mend"
    outcome, why = _outcome(predicted, unfit)
    measured, error = measured_gain(rule.gain, store, before, after, controls)
    verdict = finding.verdict if outcome == "cannot tell" else outcome
    experiment = finding.experiment
    if experiment is not None:
        experiment = replace(experiment, predict=tuple(one.evidence for one in predicted))
    return Verification(
        replace(finding, verdict=verdict, experiment=experiment),
        outcome,
        why,
        predicted,
        measured,
        error,
        before.name,
        after.name,
        tuple(one.name for one in controls),
    )


def cut(segment: Segment) -> tuple[Segment, ...]:
    """Cut a segment into equal parts."""
    length = (segment.end_s - segment.start_s) / PARTS
    starts = [segment.start_s + index * length for index in range(PARTS)]
    return tuple(Segment(f"{segment.name}[{i}]", start, start + length, segment.tags) for i, start in enumerate(starts))


def measured_gain(
    rule: GainRule | None, store: Store, before: Segment, after: Segment, controls: Sequence[Segment] = ()
) -> tuple[float | None, float | None]:
    """Return by what factor the signal that shows the gain improved, and its error; None where it cannot be told.

    Where there are ``controls``, the change is held against the mean of them and ``before``: what drifts evenly from
    one to the next cancels, and half of what they differ by is part of the error. The rest is three standard errors, of
    the means of ten batches, each long enough that steps that are alike do not count as many.
    """
    if rule is None or not rule.measured_by:
        return None, None
    unchanged = [_widened(rule.measured_by, store, one, ()) for one in (before, *controls)]
    was, now = [one for one in unchanged if isinstance(one, Reading)], _widened(rule.measured_by, store, after, ())
    values = [one.value for one in was]
    if len(was) < len(unchanged) or isinstance(now, Missing) or now.value <= 0 or min(values) <= 0:
        return None, None
    mean = sum(values) / len(was)
    error = math.hypot(*(one.error / len(was) for one in was), (max(values) - min(values)) / 2)
    factor = now.value / mean if rule.better == "up" else mean / now.value
    return factor, factor * math.hypot(error / mean, now.error / now.value)


def sure(signal: str, store: Store, segment: Segment, within: float) -> bool:
    """Whether a signal is known to this part of its value; also where there is none, which time will not mend."""
    reading = _widened(signal, store, segment, ()) if signal else None
    return not isinstance(reading, Reading) or reading.error <= within * abs(reading.value)


@dataclass(frozen=True, slots=True)
class _Noisy(Pair):
    """Reads both segments with intervals as wide as the noise."""

    floors: tuple[Noise, ...] = ()

    def now(self, signal: str) -> Reading | Missing:
        return _widened(signal, self.store, self.current, self.floors)

    def before(self, signal: str) -> Reading | Missing:
        assert self.baseline is not None
        return _widened(signal, self.store, self.baseline, ())


def _widened(signal: str, store: Store, segment: Segment, floors: Iterable[Noise]) -> Reading | Missing:
    reading = Pair(store, segment).now(signal)
    if isinstance(reading, Missing):
        return reading
    floor = max((noise.of(signal) for noise in floors), default=0.0)
    return replace(reading, error=math.hypot(WIDER * reading.error, floor))


def _predicted(check: Check, store: Store, before: Segment, after: Segment, floors: list[Noise]) -> Predicted:
    pair = _Noisy(store, after, before, tuple(floors))
    evidence = judge(check, pair, "prediction")
    was, now = pair.before(check.signal), pair.now(check.signal)
    if isinstance(was, Missing) or isinstance(now, Missing):
        return Predicted(evidence, None, None, False)
    thin = _thin(was) or _thin(now)
    if thin and check.kind != "is" and evidence.answer == "yes":
        fewer = min(was.samples, now.samples)
        evidence = replace(evidence, answer="unknown", missing=f"{fewer} samples only", remedy="measure for longer")
    points = check.bound.points or (check.kind == "is" and now.unit == "ratio")
    change, error = change_of(now, was, points)
    known = math.isfinite(change) and math.isfinite(error)
    if known and evidence.change is None:
        evidence = replace(evidence, change=change, change_error=error)
    evidence = replace(evidence, baseline=was.value, baseline_error=was.error)
    floor = max(noise.of(check.signal) for noise in floors)
    if not points:
        floor = floor / abs(was.value) if was.value else 0.0
    moved = abs(now.value - was.value) > math.hypot(now.error, was.error)
    held_before = check.kind == "is" and judge(check, Pair(store, before), "prediction").answer == "yes"
    tells = moved and not thin and check.kind in ("up", "down", "is") and not held_before and evidence.answer == "yes"
    return Predicted(evidence, floor, POWER * error if known else None, tells)


def _thin(reading: Reading) -> bool:
    return reading.samples < FEWEST_SAMPLES or reading.batches < FEWEST_BATCHES


def _outcome(predicted: tuple[Predicted, ...], held_back: str) -> tuple[Outcome, str]:
    """Return the answer and, in words, what decided."""
    if held_back:
        return "cannot tell", held_back
    answer = all_of([one.evidence.answer for one in predicted])
    if answer == "no":
        failed = next(one.evidence for one in predicted if one.evidence.answer == "no")
        return "refuted", f"{failed.signal} was predicted {failed.says}, and is not"
    if answer == "unknown":
        open_one = next(one for one in predicted if one.evidence.answer == "unknown")
        return "cannot tell", _why_open(open_one)
    if not any(one.tells for one in predicted):
        return "cannot tell", "nothing that was predicted moved further than it moves while nothing is changed"
    return "confirmed", "every prediction holds, beyond what the numbers do while nothing is changed"


def _why_open(one: Predicted) -> str:
    evidence = one.evidence
    if evidence.missing:
        return f"{evidence.signal}: {evidence.missing}; {evidence.remedy}".rstrip("; ")
    return f"the interval of {evidence.signal} reaches across the bound ({evidence.says}); measure for longer"
