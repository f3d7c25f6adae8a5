"""Progress on stderr while something takes long; nothing when stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
