"""KV forms, one folder each, found by name: `names()` imports nothing, `get(name)` imports one.

A folder holds the codec (`FORM`), and where a backend reads the form faster than by decoding it, that reader:
`cuda.py` for NVIDIA devices; the CPU's are branches of `engine.kernels._read`. A form without a reader of its own is
decoded and read.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from engine.discovery import load, module_names
from engine.forms._base import Form

NONE, HOT, EVICTED = 0, 1, 3
"""What a table of pages says where there is no page, a page at full precision, a page dropped for good."""
HOST = 32
"""Added to a form's code where the page lies in host memory: chosen like any other, but fetched before it is read."""


@cache
def names() -> tuple[str, ...]:
    return module_names(__path__)


@cache
def codes() -> dict[str, int]:
    """What a table of pages says of each form, by name; given out in alphabetical order, never written to disk."""
    free = iter(n for n in range(HOST) if n not in (NONE, HOT, EVICTED))
    return {name: HOT if name == "hot" else next(free) for name in names()}


def cold_names() -> tuple[str, ...]:
    """Every form but full precision."""
    return tuple(name for name in names() if name != "hot")


@cache
def get(name: str, *, on_device: bool = False) -> Form:
    """The form of that name, as host kernels or as a device's kernels lay it out.

    Raises ValueError with the nearest name there is.
    """
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f", did you mean {near[0]!r}" if near else ""
        raise ValueError(f"no KV form {name!r}, there are {', '.join(names())}{hint}")
    module = load(__name__, name)
    form: Form = getattr(module, "ON_DEVICE", module.FORM) if on_device else module.FORM
    form.NAME, form.CODE = name, codes()[name]
    return form
