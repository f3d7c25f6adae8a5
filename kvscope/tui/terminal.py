"""The terminal the dashboard runs in: signals that end it, and a terminal that goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

_LOOK_EVERY_S = 2.0
_GRACE_S = 8.0
"""Enough to finish a recording in good order."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def leave_cleanly_on_signals(leave: Callable[[], None]) -> None:
    """Signals that end a program end the dashboard first, so that the terminal is as it was."""
    import asyncio

    loop = asyncio.get_running_loop()
    for number in ENDING:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, leave)


def present() -> bool:
    """Is there a terminal to draw on? A terminal that was closed answers no question any more."""
    return _is_terminal(sys.__stderr__)


def missing() -> str:
    """Which standard stream the dashboard needs is not a terminal, in words; empty where both are."""
    if not present():
        return "draws on standard error"
    return "" if _is_terminal(sys.__stdin__) else "reads keys from standard input"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and os.isatty(stream.fileno())


def watch() -> None:
    """End the process in the end where its terminal has gone and the dashboard cannot leave by itself.

    A screen that was being written when the terminal went is waited for, for ever, by the thread that answers signals.
    """
    threading.Thread(target=_watch, name="kvscope-terminal", daemon=True).start()


def _watch() -> None:
    while present():
        time.sleep(_LOOK_EVERY_S)
    time.sleep(_GRACE_S)
    os._exit(128 + signal.SIGHUP)


@contextlib.contextmanager
def asked_for_its_size() -> Iterator[None]:
    """The terminal is asked for its size by way of standard output; meanwhile that is where the dashboard draws."""
    named = sys.__stdout__
    sys.__stdout__ = sys.__stderr__  # type: ignore[misc]
    try:
        yield
    finally:
        sys.__stdout__ = named  # type: ignore[misc]


def end_at_once_if_gone(was_present: bool) -> None:
    """End the process where its terminal has gone: a thread that reads a closed terminal waits, or spins, for ever.

    Call it last, when everything that must be written is written. The exit code is a hang-up's.
    """
    if was_present and not present():
        os._exit(128 + signal.SIGHUP)
