"""Panels, found by file name: a file here with one Panel in it is on the screen, in the keys and in the help."""

from __future__ import annotations

from functools import cache

from kvscope.discovery import classes
from kvscope.tui.panels._base import Panel


@cache
def discover() -> tuple[type[Panel], ...]:
    """Every panel class of this folder, in ORDER."""
    return tuple(sorted(classes(__name__, __path__, Panel), key=lambda panel: (panel.ORDER, panel.__name__)))


def numbered() -> tuple[type[Panel], ...]:
    """The panels that a number key opens: all but the ones that are always there."""
    return tuple(panel for panel in discover() if panel.SLOT != "top")
