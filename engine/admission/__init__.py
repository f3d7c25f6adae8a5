"""Admission decides whether a waiting request may run; one file each, found by its name."""

from __future__ import annotations

from engine.admission._base import Admission
from engine.discovery import load, module_names


def names() -> tuple[str, ...]:
    """Every admission strategy's name."""
    return module_names(__path__)


def get(name: str) -> Admission:
    """Return the strategy of that name (KeyError when there is none)."""
    if name not in names():
        raise KeyError(name)
    strategy: Admission = load(__name__, name).ADMISSION
    return strategy
