"""A screen whose charts are read at one moment: the reading cursor, moved by arrow keys or the mouse."""

from __future__ import annotations

from textual.geometry import Size
from textual.screen import Screen

from kvscope.tui.panels._base import Panel
from kvscope.view import View

STEPS = 120
"""Places of the cursor across the window."""


class Reading(Screen[None]):
    """Holds the view and the cursor; a panel with a time axis calls ``read_at``."""

    def __init__(self, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self.view: View | None = None
        self.cursor_s: float | None = None

    def _screen_resized(self, size: Size) -> None:
        """Lay out for the size the terminal has now. Two sizes told at once would else answer each other for ever."""
        if size == self.app.size:
            super()._screen_resized(size)

    def read_at(self, columns: int) -> None:
        """Move the cursor by so many places; where there is none it starts at the end of the window.

        Called and not posted: a message would climb through every container first, and keys pressed fast would be
        answered late.
        """
        if self.view is None:
            return
        start, end = self.view.window
        at = end if self.cursor_s is None else self.cursor_s
        self.point(min(max(at + columns * (end - start) / STEPS, start), end))

    def point(self, time_s: float | None) -> None:
        """Put the cursor of all charts at a moment; None takes it away."""
        self.cursor_s = time_s
        for panel in self.query(Panel):
            panel.point(time_s)
