"""Scrapes in the order they happened: pages, gaps where nobody answered, restarts as marks."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvscope.sources._base import Mark, Poll
from kvscope.sources._reader import Reader
from probes.sample import Sample


def clock_text(t: float) -> str:
    """Return a wall time as people read it in a notice (UTC); one that no calendar has is shown as it stands."""
    try:
        return datetime.datetime.fromtimestamp(t, datetime.UTC).strftime("%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{t:g} s"


@dataclass(slots=True)
class PageLog:
    """Collects what scrapes brought until ``take`` hands it over as a poll."""

    reader: Reader
    answered: bool = True
    _gap_start: float = 0.0
    _failed: int = 0
    _restarts: int = 0
    _pages: int = 0
    _samples: list[Sample] = field(default_factory=list)
    _marks: list[Mark] = field(default_factory=list)
    _notices: list[str] = field(default_factory=list)

    def page(self, text: str, t: float, side: Mapping[str, float] | None = None) -> None:
        """Take a page scraped at ``t``. One without any of the engine's metrics counts as no answer."""
        result = self.reader.read(text, t, side)
        if len(result.samples) <= 1:
            self.failure(t, f"the page holds none of {self.reader.engine.EXPECTS}")
            return
        if not self.answered:
            self._notices.append(
                f"answered again at {clock_text(t)}; {self._failed} scrapes failed since {clock_text(self._gap_start)}"
            )
        self.answered, self._failed = True, 0
        if not self._pages:
            self._notices += self.reader.missing(result.samples)
        self._pages += 1
        if result.restarted:
            self._restarts += 1
            self._marks.append(Mark(f"restart-{self._restarts}", t, dict(self.reader.tags)))
        self._samples += result.samples
        self._notices += result.notices

    def failure(self, t: float, why: str) -> None:
        """Take a scrape that failed; only the first of a gap is told."""
        if self.answered:
            self._gap_start = t
            self._notices.append(f"no answer since {clock_text(t)}: {why}")
        self.answered = False
        self._failed += 1

    def notice(self, text: str) -> None:
        """Add a line that a person should read."""
        self._notices.append(text)

    def take(self, *, ended: bool = False) -> Poll:
        """Return what came since the last call."""
        poll = Poll(self._samples, tuple(self._marks), tuple(self._notices), ended)
        self._samples, self._marks, self._notices = [], [], []
        return poll
