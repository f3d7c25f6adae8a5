"""Screens. A file here with a Board in it is found by its name: on its key, in the bar and in the palette."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.tui.screens._board import Board


@cache
def discover() -> tuple[type[Board], ...]:
    """Every board of this folder, in ORDER."""
    from kvscope.tui.screens._board import Board

    found: list[type[Board]] = []
    for entry in pkgutil.iter_modules(__path__):
        if entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{entry.name}")
        found += [
            thing
            for thing in vars(module).values()
            if isinstance(thing, type) and issubclass(thing, Board) and thing.__module__ == module.__name__
        ]
    return tuple(sorted(found, key=lambda board: (board.ORDER, board.TITLE)))
