"""Every finding, and for the chosen one the charts of the signals it judged, each with where its check says yes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvscope import signals
from kvscope.screens import Chart, Screen
from kvscope.screens.reader import NOW_S, Reader
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Segment
from kvscope.view import Trend

if TYPE_CHECKING:
    from kvscope.checks import Check
    from kvscope.finding import Evidence, Finding

POINTS = 40
"""Readings across the window."""
MOST = 8
_SHORTEST_S = 3.0

Band = tuple[float | None, float | None]


def judged(reader: Reader) -> tuple[str, tuple[Trend, ...]]:
    """The opened finding, else the first, and one chart a signal, in the order it asked: symptom, cause, rivals."""
    findings = reader.diagnosis.findings if reader.diagnosis else ()
    finding = next((one for one in findings if one.id == reader.about), findings[0] if findings else None)
    if finding is None:
        return reader.about, ()
    found: dict[str, Trend] = {}
    for one in (*finding.evidence, *(rival.evidence for rival in finding.rivals)):
        if one.signal not in found and len(found) < MOST:
            found[one.signal] = _chart(reader, finding, one)
    return finding.id, tuple(found.values())


def _chart(reader: Reader, finding: Finding, one: Evidence) -> Trend:
    unit = one.unit or (signals.describe(one.signal)[0] if one.signal in signals.names() else "")
    window = reader.charts.window
    step = (window[1] - window[0]) / POINTS
    first = int(window[0] // step) + 1
    ends = [(first + index) * step for index in range(POINTS)]
    points = [(end, value) for end in ends if (value := _value(reader, one.signal, end, step)) is not None]
    check = _check(reader, finding, one)
    return Trend(
        one.signal,
        one.signal,
        unit,
        tuple(points) if points else Missing(one.missing or f"{one.signal} has no reading here", one.remedy),
        baseline=one.baseline,
        signals=(one.signal,),
        bin_s=step,
        band=band(check, one.baseline) if check else None,
    )


def _value(reader: Reader, name: str, end: float, step: float) -> float | None:
    """The signal over the seconds before ``end``, as a headline reads it; a point whose time is over is read once."""
    known, segments = reader.points, reader.store.segments
    if (name, end) in known:
        return known[name, end]
    newest = segments[-1].end_s if segments else 0.0
    home = next((one for one in reversed(segments) if one.start_s < end), None)
    if home is None or end - step >= newest or name not in signals.names():
        return None
    start, until = max(home.start_s, end - NOW_S), min(end, home.end_s)
    if until - start < _SHORTEST_S:
        return None
    found = signals.compute(name, reader.store, Segment(home.name, start, until, home.tags))
    value = found.value if isinstance(found, Reading) else None
    if end < newest:
        if len(known) > MOST * POINTS * 20:
            known.clear()
        known[name, end] = value
    return value


def _check(reader: Reader, finding: Finding, one: Evidence) -> Check | None:
    rule = next((book for book in reader.playbooks if book.id == finding.id), None)
    checks = rule.checks() if rule else ()
    return next((check for check in checks if check.name == one.check and check.signal == one.signal), None)


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


SCREEN = Screen(
    title="Diagnosis",
    order=10,
    help="Every finding, and for the chosen one the charts that made it fire, with band, onset and baseline.",
    charts=(Chart("Throughput", (("generation_tokens_per_s",),)),),
    judged=judged,
)
