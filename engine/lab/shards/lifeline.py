"""How a rank learns that another is gone, though it may be stuck in an exchange: its launcher says so on stdin."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

EXIT_OTHERS = 3
"""Ended because others did."""
PATIENCE_S = 3.0


class Lifeline:
    """Ends this process, with one line, when stdin says `gone WHO` or closes. An exit beside the main thread."""

    def __init__(self, rank: int, last_word: Callable[[str], None]) -> None:
        self._rank, self._last_word = rank, last_word
        self._said = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="lifeline", daemon=True)
        self._thread.start()

    def end(self, why: str) -> None:
        """Say why, once, and end. Threads of the backend may be stuck: nothing is waited for."""
        with self._said:
            self._last_word(why)
            sys.stderr.write(f"rank {self._rank}: {why}; it ends, its flight recorder stays\n")
            sys.stderr.flush()
            os._exit(EXIT_OTHERS)

    def end_on_failed_exchange(self, error: BaseException) -> None:
        """An exchange failed: who is gone is the launcher's to say, for a while."""
        if "timed out" not in str(error).lower():
            self._thread.join(PATIENCE_S)
        self.end(f"the other ranks do not answer ({str(error).splitlines()[0][:200]})")

    def _listen(self) -> None:
        for line in sys.stdin:
            word, _, who = line.strip().partition(" ")
            if word == "gone":
                self.end(who)
            if word == "done":
                return
        self.end("the launcher is gone")
