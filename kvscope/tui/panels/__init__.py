"""Panels, found by file name: a file here with one Panel in it is on the screen, in the keys and in the help."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from kvscope.tui.panels._base import Panel


@cache
def discover() -> tuple[type[Panel], ...]:
    """Every panel class of this folder, in ORDER."""
    found: list[type[Panel]] = []
    for entry in pkgutil.iter_modules(__path__):
        if entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{entry.name}")
        found += [
            thing
            for thing in vars(module).values()
            if isinstance(thing, type) and issubclass(thing, Panel) and thing.__module__ == module.__name__
        ]
    return tuple(sorted(found, key=lambda panel: (panel.ORDER, panel.__name__)))


def numbered() -> tuple[type[Panel], ...]:
    """The panels that a number key opens: all but the ones that are always there."""
    return tuple(panel for panel in discover() if panel.SLOT != "top")
