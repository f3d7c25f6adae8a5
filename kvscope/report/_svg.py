"""Small drawings for the HTML report, as text: a check's interval against its baseline, and a signal over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from kvscope.finding import Evidence

_WIDE, _HIGH, _PAD = 360, 46, 8
Point = tuple[float, float]


def interval(evidence: Evidence) -> str:
    """Return baseline and current value with their intervals on one scale; empty where there is no value."""
    if evidence.value is None or not math.isfinite(evidence.value):
        return ""
    rows = [("now", evidence.value, evidence.error or 0.0)]
    if evidence.baseline is not None and math.isfinite(evidence.baseline):
        rows.insert(0, ("before", evidence.baseline, evidence.baseline_error or 0.0))
    low = min(0.0, *(value - error for _, value, error in rows))
    high = max(value + error for _, value, error in rows)
    span = (high - low) or 1.0
    parts = [_row(at, name, value, error, low, span) for at, (name, value, error) in enumerate(rows)]
    height = 18 * len(rows) + 4
    label = f"{evidence.signal}: {', '.join(f'{name} {value:.4g}' for name, value, _ in rows)}"
    return _image(height, label, "".join(parts))


def _row(at: int, name: str, value: float, error: float, low: float, span: float) -> str:
    y = 11 + 18 * at
    left, right, here = (60 + (_WIDE - 70) * (one - low) / span for one in (value - error, value + error, value))
    return (
        f'<text x="0" y="{y + 4}">{name}</text>'
        f'<line class="{name}" x1="{left:.1f}" y1="{y}" x2="{right:.1f}" y2="{y}"/>'
        f'<circle class="{name}" cx="{here:.1f}" cy="{y}" r="4"/>'
    )


def course(signal: str, stretches: Sequence[Sequence[Point]]) -> str:
    """Return a signal over time, one line for each segment; empty where it was read at fewer than two times."""
    points = [point for stretch in stretches for point in stretch]
    if len(points) < 2:
        return ""
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    low, high = min(0.0, *(value for _, value in points)), max(value for _, value in points)
    lines = []
    for at, stretch in enumerate(stretches):
        told = " ".join(
            f"{_PAD + (_WIDE - 2 * _PAD) * (t - first) / ((last - first) or 1):.1f},"
            f"{_HIGH - _PAD - (_HIGH - 2 * _PAD) * (value - low) / ((high - low) or 1):.1f}"
            for t, value in stretch
        )
        lines.append(f'<polyline class="{"now" if at == len(stretches) - 1 else "before"}" points="{told}"/>')
    return _image(_HIGH, f"{signal} over time, up to {high:.4g}", "".join(lines))


def _image(height: int, label: str, inner: str) -> str:
    name = escape(label, quote=True)
    size = f'viewBox="0 0 {_WIDE} {height}" width="{_WIDE}" height="{height}"'
    return f'<svg {size} role="img" aria-label="{name}">{inner}</svg>'
