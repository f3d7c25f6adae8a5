"""Charts of the signals that a finding judged: each as the headline reads it, and where its check says yes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kvscope import signals
from kvscope.session_view import NOW_S
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Segment, Store
from kvscope.view import Trend

if TYPE_CHECKING:
    from kvscope.checks import Check
    from kvscope.finding import Evidence, Finding
    from kvscope.playbook_schema import Playbook

POINTS = 40
"""Readings across the window."""
MOST = 8
_SHORTEST_S = 3.0

Band = tuple[float | None, float | None]


class Judged:
    """Reads each signal over the seconds before each point; a point whose time is over is read once."""

    def __init__(self, store: Store, playbooks: Iterable[Playbook]) -> None:
        self._store = store
        self._playbooks = playbooks
        self._known: dict[tuple[str, float], float | None] = {}

    def charts(self, finding: Finding, window: tuple[float, float]) -> tuple[Trend, ...]:
        """One chart a signal, in the order in which the finding asked: symptom, cause, rivals."""
        segments = self._store.segments
        found: dict[str, Trend] = {}
        for one in (*finding.evidence, *(rival.evidence for rival in finding.rivals)):
            if one.signal not in found and len(found) < MOST:
                found[one.signal] = self._chart(finding, one, window, segments)
        return tuple(found.values())

    def _chart(
        self, finding: Finding, one: Evidence, window: tuple[float, float], segments: Sequence[Segment]
    ) -> Trend:
        unit = one.unit or (signals.describe(one.signal)[0] if one.signal in signals.names() else "")
        step = (window[1] - window[0]) / POINTS
        first = int(window[0] // step) + 1
        ends = [(first + index) * step for index in range(POINTS)]
        points = [(end, value) for end in ends if (value := self._value(one.signal, end, step, segments)) is not None]
        check = self._check(finding, one)
        return Trend(
            one.signal,
            one.signal,
            unit,
            tuple(points) if points else Missing(one.missing or f"{one.signal} has no reading here", one.remedy),
            baseline=one.baseline,
            signals=(one.signal,),
            bin_s=step,
            band=band(check, one.baseline) if check else None,
            band_says=one.says,
        )

    def _value(self, name: str, end: float, step: float, segments: Sequence[Segment]) -> float | None:
        known = self._known.get((name, end))
        if known is not None or (name, end) in self._known:
            return known
        newest = segments[-1].end_s if segments else 0.0
        home = next((one for one in reversed(segments) if one.start_s < end), None)
        if home is None or end - step >= newest or name not in signals.names():
            return None
        start, until = max(home.start_s, end - NOW_S), min(end, home.end_s)
        if until - start < _SHORTEST_S:
            return None
        found = signals.compute(name, self._store, Segment(home.name, start, until, home.tags))
        value = found.value if isinstance(found, Reading) else None
        if end < newest:
            if len(self._known) > MOST * POINTS * 20:
                self._known.clear()
            self._known[name, end] = value
        return value

    def _check(self, finding: Finding, one: Evidence) -> Check | None:
        rule = next((one for one in self._playbooks if one.id == finding.id), None)
        return (
            next((c for c in rule.checks() if c.name == one.check and c.signal == one.signal), None) if rule else None
        )


def band(check: Check, baseline: float | None) -> Band | None:
    """Where a reading makes the check say yes: from and to; None where that depends on a baseline nobody has."""
    if check.kind == "is":
        if check.where == "baseline":
            return None
        return (check.threshold, None) if check.sense == ">=" else (None, check.threshold)
    if baseline is None:
        return None
    size = check.bound.size if check.bound.points else abs(baseline) * check.bound.size
    low, high = baseline - size, baseline + size
    return {
        "up": (high, None),
        "down": (None, low),
        "flat": (low, high),
        "not_up": (None, high),
        "not_down": (low, None),
    }[check.kind]
