"""Settings as an experiment gives them: a value, or a step from the current one (``x2``, ``+50%``, ``-1``)."""

from __future__ import annotations

import re

from kvscope.errors import UsageError

_STEP = re.compile(r"x(\d+(?:\.\d+)?)|([+-])\d+(?:\.\d+)?%?")


def opposite(one: str, other: str) -> bool:
    """Whether two settings of a knob pull apart: up against down, or two different values."""
    first, second = direction(one), direction(other)
    if first and second:
        return first != second
    return one != other


def direction(value: str) -> int:
    """Return +1 for ``x2`` or ``+10%``, -1 for ``x0.5`` or ``-10%``, 0 for a plain value."""
    found = _STEP.fullmatch(value.strip())
    if not found:
        return 0
    if found[2]:
        return 1 if found[2] == "+" else -1
    return 1 if float(found[1]) > 1 else -1


def resolve(current: str, wanted: str) -> str:
    """Turn a relative setting (``x2``, ``+50%``, ``-1``) into the value to set, given the knob's current one."""
    text = wanted.strip()
    if not _STEP.fullmatch(text):
        return text
    try:
        now = float(current)
    except ValueError:
        raise UsageError(f"{wanted} is a step, but the setting's present value is {current!r}, no number") from None
    if text.startswith("x"):
        value = now * float(text[1:])
    elif text.endswith("%"):
        value = now * (1 + float(text[:-1]) / 100)
    else:
        value = now + float(text)
    return str(round(value)) if re.fullmatch(r"-?\d+", current.strip()) else f"{value:g}"


def is_step(wanted: str) -> bool:
    """Whether a setting needs the current value to be known."""
    return _STEP.fullmatch(wanted.strip()) is not None
