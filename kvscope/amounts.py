"""Numbers and times as people read them; the same quantity always in the same unit within one line."""

from __future__ import annotations

import datetime
import math

_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_PLAIN = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_WHOLE = 1e4
"""Below this a plain number is written out."""

_SHORT = {"1/s": "/s", "tokens/s": "tok/s", "tokens": "tok", "requests": "", "events": "", "ratio": "%"}


def amount(value: float, unit: str, error: float | None = None) -> str:
    """Return ``value ± error`` in one unit: 36.1 ms ± 0.4, 1.23 GiB, 15.5 %."""
    factor, name = _scale(value, unit)
    text = _join(_digits(value / factor), name)
    return text if not error else f"{text} ± {_digits(error / factor, like=value / factor)}"


def pair(before: float, after: float, unit: str, error: float | None = None) -> str:
    """Return ``before → after ± error``, both in the unit that suits the larger."""
    factor, name = _scale(max(abs(before), abs(after)), unit)
    text = f"{_digits(before / factor)} → {_join(_digits(after / factor), name)}"
    return text if not error else f"{text} ± {_digits(error / factor, like=after / factor)}"


def change(value: float, error: float | None, *, points: bool) -> str:
    """Return a signed change, in points of a share or in percent of the baseline."""
    text = f"{value * 100:+.1f} {'pp' if points else '%'}"
    return text if not error else f"{text} ± {error * 100:.1f}"


def factor(value: float | None) -> str:
    """Return a speed-up factor: 1.18×."""
    return "unknown" if value is None else f"{value:.2f}×"


def clock(t: float) -> str:
    """Return a wall time, UTC."""
    return datetime.datetime.fromtimestamp(t, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span(start_s: float, end_s: float) -> str:
    """Return how long a segment is."""
    length = max(0.0, end_s - start_s)
    if length < 120:
        return f"{length:.0f} s"
    return f"{length / 60:.0f} min" if length < 7200 else f"{length / 3600:.1f} h"


def _scale(value: float, unit: str) -> tuple[float, str]:
    if unit == "ratio":
        return 0.01, "%"
    size = abs(value)
    steps = {"B": _BYTES, "s": _SECONDS}.get(unit, _PLAIN if size >= _WHOLE else _PLAIN[-1:])
    scale, prefix = next((step for step in steps if size >= step[0] * 0.9995), steps[-1])
    if size == 0:
        scale, prefix = (1.0, unit) if unit in ("B", "s") else (1.0, "")
    return scale, prefix if unit in ("B", "s") else f"{prefix}{' ' if prefix else ''}{_SHORT.get(unit, unit)}".strip()


def _digits(value: float, like: float | None = None) -> str:
    """Return three significant digits or the whole integer part; ``like`` gives the number whose decimals to take."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value if like is None else like)
    if like is None and value == int(value) and size < 1e4:
        return f"{value:.0f}"
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 4
    if like is not None and value and abs(value) < 10.0**-decimals:
        return f"{value:.1g}"
    return f"{value:.{decimals}f}"


def _join(digits: str, name: str) -> str:
    return digits + name if name.startswith("/") else f"{digits} {name}".rstrip()
