"""KV forms, found by file name: `names()` imports nothing, `get(name)` imports one."""

from __future__ import annotations

from difflib import get_close_matches

from engine.discovery import load, module_names
from engine.forms._base import Form

NONE = 0
EVICTED = 3
HOST = 32
"""Added to a form's code where the page lies in host memory: chosen like any other, but fetched before it is read."""


def names() -> list[str]:
    return list(module_names(__path__))


def get(name: str) -> Form:
    """The form of that name. Raises ValueError with the nearest name there is."""
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f", did you mean {near[0]!r}" if near else ""
        raise ValueError(f"no KV form {name!r}, there are {', '.join(names())}{hint}")
    form: Form = load(__name__, name).FORM
    return form
