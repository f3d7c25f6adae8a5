"""Kernels that are wrong on purpose, one a file: what a regression check has to catch before anybody trusts it."""

from __future__ import annotations

from difflib import get_close_matches

from engine.discovery import load, module_names
from engine.lab.accuracy.exact import swap_operators
from engine.llm import Engine


def names() -> tuple[str, ...]:
    return module_names(__path__)


def spoil(engine: Engine, name: str) -> None:
    """Make the engine's operators wrong; ValueError with the nearest name there is."""
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"wrong={name}: expected one of {', '.join(names())}{hint}")
    swap_operators(engine, "read", load(__name__, name).Wrong)
