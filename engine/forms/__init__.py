"""KV forms, one folder each, found by name: `names()` imports nothing, `get(name)` imports one.

A folder holds the codec (`FORM`), and where a backend reads the form faster than by decoding it, that reader:
`cuda.py` for NVIDIA devices (`engine.kernels._cuda.page` says what it holds), `compiled.py` for the CPU: its `read`
folds the first n tokens of the page at a byte offset into the running soft maximum of a kv head, q [g, d] being scaled
already, and asks meanwhile for the cache lines `soon` (first, number). A form without a reader is decoded and read.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any

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


def has_reader(name: str, backend: str) -> bool:
    """Whether a form brings a reader for `cuda` or `compiled`."""
    return backend in module_names(load(__name__, name).__path__)


def reader(name: str, backend: str) -> Any:
    """The module of a form's reader."""
    return load(f"{__name__}.{name}", backend)


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
