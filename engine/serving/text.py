"""Turns tokens into text that can be sent at once: whole characters only, and nothing that may become a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from engine.tokenizer import Tokenizer

UNFINISHED = "\ufffd"
LONGEST_CHARACTER = 4
"""Tokens that one character can take: UTF-8 has at most four bytes. After that it is not unfinished but invalid."""


class TextStream:
    """The answer of one request. ``stopped`` once a stop string was met; it and what follows is left out."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self.stopped = False
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        self._ids: list[int] = []
        self._shown = self._seen = 0
        """Tokens before `_shown` are done with; those up to `_seen` are text already and context for what comes."""
        self._held = ""

    def add(self, token: int) -> str:
        """The text that is safe to send after one more token."""
        self._ids.append(token)
        before = self._tokenizer.decode(self._ids[self._shown : self._seen])
        now = self._tokenizer.decode(self._ids[self._shown :])
        if now.endswith(UNFINISHED) and len(self._ids) - self._seen < LONGEST_CHARACTER:
            return ""
        self._shown, self._seen = self._seen, len(self._ids)
        return self._release(now[len(before) :])

    def finish(self) -> str:
        """What was held back, once it is clear that nothing follows."""
        before = self._tokenizer.decode(self._ids[self._shown : self._seen])
        now = self._tokenizer.decode(self._ids[self._shown :])
        text = self._release(now[len(before) :])
        rest, self._held = self._held, ""
        return text + rest

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            ready, self._held = self._held[: min(found)], ""
            return ready
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        ready = self._held[: len(self._held) - keep]
        self._held = self._held[len(ready) :]
        return ready


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that ``stop`` starts with."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
