"""Attention kernels, found by file name: `names()` imports nothing, `get(name)` imports one."""

from __future__ import annotations

from difflib import get_close_matches

from engine.discovery import load, module_names
from engine.kernels import _code_cache
from engine.kernels._base import DecodeBatch, Keep, Kernels, Selection, Traffic

__all__ = ["DecodeBatch", "Keep", "Kernels", "Selection", "Traffic", "get", "names"]

_code_cache.use()


def names() -> list[str]:
    return list(module_names(__path__))


def get(name: str) -> Kernels:
    """A fresh set of kernels. Raises ValueError with the nearest name there is."""
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f", did you mean {near[0]!r}" if near else ""
        raise ValueError(f"no kernels {name!r}, there are {', '.join(names())}{hint}")
    made: Kernels = load(__name__, name).make()
    return made
