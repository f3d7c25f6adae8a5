"""Amounts as people read them, the same quantity always in one unit within a line, and as they type them: 80GB, 32K."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from typing import TypeVar

from kvscope.errors import UsageError
from probes.border import EXACT, shown

_T = TypeVar("_T")

_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_PLAIN = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TYPED_BYTES = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("", 1000), ("B", 1000), ("iB", 1024), ("i", 1024))
}
_TYPED_TOKENS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_WHOLE = 1e4
"""Below this a plain number is written out."""

_SHORT = {"1/s": "/s", "tokens/s": "tok/s", "tokens": "tok", "requests": "", "events": "", "ratio": "%"}


def amount(value: float, unit: str, error: float | None = None) -> str:
    """Return ``value ± error`` in one unit: 36.1 ms ± 0.4, 1.23 GiB, 15.5 %; a flag says yes or no."""
    if flag := yes_no(value, unit):
        return flag
    factor, name = _scale(value, unit)
    text = _join(_digits(value / factor), name)
    return text if not error else f"{text} ± {_digits(error / factor, like=value / factor)}"


def yes_no(value: float, unit: str) -> str:
    """Return what a flag says; empty for anything else, also for a mean of flags that differ."""
    return {0.0: "no", 1.0: "yes"}.get(value, "") if unit == "flag" else ""


def bound(value: float, unit: str) -> str:
    """Return a bound as it was written, in the unit its signal is shown in: 25 %, 50 ms, 1.05."""
    if flag := yes_no(value, unit):
        return flag
    factor, name = _scale(value, unit)
    return _join(f"{value / factor:g}", name if unit in ("ratio", "B", "s") else "")


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


def byte_count(text: str, option: str) -> int:
    """Return bytes: a number with an optional suffix, decimal (GB) or binary (GiB); UsageError."""
    return _parse(text, option, _TYPED_BYTES, "bytes, e.g. 80000000000, 80GB or 80GiB")


def token_count(text: str, option: str) -> int:
    """Return tokens: a whole number, K and M being 1024 and 1024 × 1024; UsageError."""
    return _parse(text, option, _TYPED_TOKENS, "a whole number of tokens, e.g. 32768 or 32K")


def _parse(text: str, option: str, scales: dict[str, int], expected: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([A-Za-z]*)\s*", text)
    scale = scales.get(match[2], scales.get(match[2].upper())) if match else None
    amount = float(match[1]) * scale if match is not None and scale is not None else 0.0
    if not 1 <= amount <= EXACT:
        raise UsageError(f"{option} {shown(text)}: expected {expected}")
    return round(amount)


def each(text: str, option: str, read: Callable[[str, str], _T]) -> tuple[_T, ...]:
    """Return what ``read(part, option)`` makes of every part between commas; UsageError when there is none."""
    found = tuple(read(part.strip(), option) for part in text.split(",") if part.strip())
    if not found:
        raise UsageError(f"{option} {shown(text)}: expected something")
    return found


def share(text: str, option: str) -> float:
    """Return a share above 0 and at most 1; UsageError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise UsageError(f"{option} {shown(text)}: expected a share, more than 0 and at most 1")
    return found


def whole(least: int) -> Callable[[str, str], int]:
    """Return a reader of whole numbers from ``least`` on; it raises UsageError."""

    def read(text: str, option: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= EXACT:
            raise UsageError(f"{option} {shown(text)}: expected whole numbers from {least} on")
        return int(text)

    return read
