"""Screens. A file here with a Board in it is found by its name: on its key, in the bar and in the palette."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kvscope.discovery import classes

if TYPE_CHECKING:
    from kvscope.tui.screens._board import Board


@cache
def discover() -> tuple[type[Board], ...]:
    """Every board of this folder, in ORDER."""
    from kvscope.tui.screens._board import Board

    return tuple(sorted(classes(__name__, __path__, Board), key=lambda board: (board.ORDER, board.TITLE)))
