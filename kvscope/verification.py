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
from kvscope.judge import Pair, all_of, judge
from kvscope.playbook_schema import GainRule, Playbook
from kvscope.signals.algebra import SHARE
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.significance import FEWEST_WINDOWS, POWER, change, floor_of, moved, thin, widened
from kvscope.store import Segment, Store

Outcome = Literal["confirmed", "refuted", "cannot tell"]
PARTS = 3
"""A segment without a control is cut into so many: they too differ although nothing was changed."""
_STOOD = ("likely", "possible", "confirmed")
"""Verdicts of a finding that can be confirmed: of a cause that was not seen nothing follows."""
_TAG_OF = {"max_running": "cap"}
"""knob → the tag that carries it, where the names differ"""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction's outcome. ``floor`` and ``detectable`` are changes, in points or relative as the evidence's is."""

    evidence: Evidence
    floor: float | None
    detectable: float | None
    tells: bool
    """Whether it moved beyond the noise: a prediction that held all along proves nothing."""
    windows: int = FEWEST_WINDOWS
    """Windows of samples that the shorter side has, of those it takes to tell."""


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
        """What was expected, and what it brought."""
        return self.finding.gain

    @property
    def windows(self) -> int:
        """Windows of samples there are, of the ``FEWEST_WINDOWS`` that it takes to tell."""
        return min((min(one.windows, FEWEST_WINDOWS) for one in self.predicted), default=0)


@dataclass(frozen=True, slots=True)
class Noise:
    """Stretches of one configuration: what differs between them is noise."""

    store: Store
    stretches: tuple[Segment, ...]

    def of(self, signal: str) -> float:
        """The largest difference between two stretches, in the signal's unit; 0 where fewer than two have a value."""
        readings = [Pair(self.store, one).now(signal) for one in self.stretches]
        return floor_of(one for one in readings if isinstance(one, Reading))


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
    experiment, gain = finding.experiment, finding.gain
    if experiment is not None:
        experiment = replace(experiment, predict=tuple(one.evidence for one in predicted))
    if gain is not None:
        gain = replace(gain, measured=measured, measured_error=error)
    return Verification(
        replace(finding, verdict=verdict, experiment=experiment, gain=gain),
        outcome,
        why,
        predicted,
        measured,
        error,
        before.name,
        after.name,
        tuple(one.name for one in controls),
    )


def held(rule: Playbook, pair: Pair) -> str:
    """Say which tag that had to stay the same did not (the knob the experiment turns may change), or nothing."""
    if rule.compare is None or pair.baseline is None or rule.experiment is None:
        return ""
    turned = {knob for knob, _ in rule.experiment.set} | {_TAG_OF.get(knob, "") for knob, _ in rule.experiment.set}
    before, now = pair.baseline.tags, pair.current.tags
    for tag in rule.compare.same:
        if tag not in turned and tag in before and tag in now and before[tag] != now[tag]:
            return f"{tag} changed with it ({before[tag]}, then {now[tag]})"
    return ""


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
    return widened(reading, max((noise.of(signal) for noise in floors), default=0.0))


def _predicted(check: Check, store: Store, before: Segment, after: Segment, floors: list[Noise]) -> Predicted:
    pair = _Noisy(store, after, before, tuple(floors))
    evidence = judge(check, pair, "prediction")
    was, now = pair.before(check.signal), pair.now(check.signal)
    if isinstance(was, Missing) or isinstance(now, Missing):
        return Predicted(evidence, None, None, False, 0)
    fewer, too_few = min(was.samples, now.samples), thin(was) or thin(now)
    if too_few and check.kind != "is" and evidence.answer == "yes":
        evidence = replace(evidence, answer="unknown", missing=f"{fewer} windows only", remedy="measure for longer")
    found = change(now, was, points=check.bound.points or (check.kind == "is" and now.unit == SHARE))
    if found.known and evidence.change is None:
        evidence = replace(evidence, change=found.size, change_error=found.error, points=found.points)
    evidence = replace(evidence, baseline=was.value, baseline_error=was.error)
    floor = max(noise.of(check.signal) for noise in floors)
    if not found.points:
        floor = floor / abs(was.value) if was.value else 0.0
    held_before = check.kind == "is" and judge(check, Pair(store, before), "prediction").answer == "yes"
    tells = moved(now, was) and not too_few and check.kind in ("up", "down", "is") and not held_before
    tells = tells and evidence.answer == "yes"
    return Predicted(
        evidence, floor, POWER * found.error if found.known else None, tells, fewer if too_few else FEWEST_WINDOWS
    )


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
