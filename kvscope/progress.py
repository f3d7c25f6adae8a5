"""Progress on stderr while something takes long; nothing when stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


@contextmanager
def waiting(what: str) -> Iterator[Callable[[float], None]]:
    """Show ``what`` with the seconds spent so far; the line is wiped at the end."""
    line = Line()
    try:
        yield lambda seconds: line.show(f"{what} … {seconds:.0f} s")
    finally:
        line.wipe()


class Line:
    """One line on stderr that is overwritten in place."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._live and text != self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = text

    def wipe(self) -> None:
        """Leave no trace of it."""
        if self._live and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""


class Bar:
    """A bar of finished parts, with what is being done and how long is left; nothing when stderr is no terminal."""

    WIDTH = 24

    def __init__(self, total: int, done: int = 0, clock: Callable[[], float] = monotonic) -> None:
        self._total, self._done, self._clock = total, done, clock
        self._before, self._began, self._said = done, clock(), ""
        self._line = Line()

    def say(self, text: str) -> None:
        """Say what is being done."""
        self._said = text
        self._line.show(self.text())

    def step(self) -> None:
        """One more part is finished."""
        self._done += 1
        self._line.show(self.text())

    def text(self) -> str:
        filled = round(self.WIDTH * self._done / max(1, self._total))
        bar = "█" * filled + "░" * (self.WIDTH - filled)
        return f"{bar} {self._done} of {self._total}{self._left()}  {self._said}"

    def wipe(self) -> None:
        """Leave no trace of it."""
        self._line.wipe()

    def _left(self) -> str:
        made = self._done - self._before
        if made == 0:
            return ""
        seconds = (self._clock() - self._began) / made * (self._total - self._done)
        return f", {seconds / 60:.0f} min left" if seconds >= 90 else f", {seconds:.0f} s left"
