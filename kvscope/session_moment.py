"""Which moment is on screen: the newest sample, or an earlier one somebody went back to; and how much before it."""

from __future__ import annotations

from kvscope.session_trends import window_for
from kvscope.store import Store

PARTS = 12
"""One step through time is this part of the window."""


class Moment:
    """Where a person stands in time. Data are collected all the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.at_s: float | None = None
        """The moment shown, None for the newest sample."""
        self.overlay = False
        self.window_s = window_for(0.0)
        self._zoom = 0
        self.moved = True
        """Something here changed since the last view was made."""

    def window(self, needed_s: float) -> float:
        """The window that holds ``needed_s``, as long as somebody asked for."""
        self.window_s = window_for(needed_s, self._zoom)
        return self.window_s

    def pause(self) -> str:
        """Stand still at the newest sample; a second time go on with it."""
        return self.seek(None if self.at_s is not None else self._newest())

    def scrub(self, steps: int) -> str:
        """Go back (negative) or forward by parts of the window; past the newest sample the view goes on by itself."""
        newest = self._newest()
        if newest is None or (self.at_s is None and steps > 0):
            return ""
        at = (self.at_s if self.at_s is not None else newest) + steps * self.window_s / PARTS
        return self.seek(None if at > newest else at)

    def seek(self, time_s: float | None) -> str:
        """Show the moment ``time_s``, None the newest sample for good."""
        span = self._store.span
        self.moved = True
        self.at_s = min(max(time_s, span[0]), span[1]) if time_s is not None and span else None
        return ""

    def centre(self, time_s: float) -> str:
        """Show ``time_s`` in the middle of the window, or as near to it as there are samples."""
        newest = self._newest()
        at = time_s + self.window_s / 2
        return self.seek(None if newest is None or at >= newest else at)

    def zoom(self, steps: int) -> str:
        """Show a longer (positive) or shorter stretch of time."""
        self._zoom += steps
        self.moved = True
        return ""

    def lay_under(self) -> str:
        """Draw the baseline's curve under the current one, or no longer."""
        self.overlay = not self.overlay
        self.moved = True
        return "The baseline lies under the curves, moved to where the current segment starts" if self.overlay else ""

    def _newest(self) -> float | None:
        return self._store.span[1] if self._store.span else None
