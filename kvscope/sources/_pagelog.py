"""Scrapes in the order they happened: pages, gaps where nobody answered, restarts as marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvscope.errors import SourceError
from kvscope.sources._page import PageResult
from kvscope.sources._reader import Reader, reader_for
from kvscope.sources._replicas import Labeller
from kvscope.sources.clock import Straightener, clock_text
from kvscope.sources.identity import MOST_PROCESSES, Seen
from kvscope.sources.source import Mark, Poll
from probes.sample import Labels, Sample

_CUTS = {Seen.RESTARTED: "restart", Seen.EXCHANGED: "exchange", Seen.SEVERAL: "several-engines"}
"""What a segment is called that begins with such a page."""


@dataclass(slots=True)
class PageLog:
    """Collects what scrapes brought until ``take`` hands it over as a poll."""

    reader: Reader
    straightener: Straightener[tuple[str, Labels]] | None = None
    """Sets times straight that were saved by a wall clock; None where they come from our own."""
    answered: bool = True
    heard_s: float = 0.0
    exchanged: bool = False
    """Another engine was seen; whoever looks beside the page must look again, and then says False."""
    _gap_start: float = 0.0
    _failed: int = 0
    _cuts: int = 0
    _labels: dict[int, Labeller] = field(default_factory=dict)
    _pages: int = 0
    _samples: list[Sample] = field(default_factory=list)
    _marks: list[Mark] = field(default_factory=list)
    _notices: list[str] = field(default_factory=list)

    def page(self, text: str, t: float, side: Mapping[str, float] | None = None) -> None:
        """Take a page scraped at ``t``. One without any of the engine's metrics counts as no answer."""
        result = self.reader.read(text, t, side)
        if len(result.samples) <= 1:
            result = self._of_another(text, t, result)
        if len(result.samples) <= 1:
            self.failure(t, f"the page holds none of {self.reader.engine.EXPECTS}")
            return
        if self.straightener is not None:
            t, notice = self.straightener.straight(t, result.counters)
            result.samples = [sample._replace(t=t) for sample in result.samples]
            result.notices += [notice] if notice else []
        self.heard_s = t
        if not self.answered:
            self._notices.append(
                f"answered again at {clock_text(t)}; {self._failed} scrapes failed since {clock_text(self._gap_start)}"
            )
        self.answered, self._failed = True, 0
        if not self._pages:
            self._notices += self.reader.missing(result.samples)
        self._pages += 1
        self.exchanged |= result.seen is Seen.EXCHANGED
        if (name := _CUTS.get(result.seen)) is not None:
            self._cuts += 1
            self._marks.append(Mark(f"{name}-{self._cuts}", t, dict(self.reader.tags)))
        self._samples += result.samples if result.process is None else self._apart(result.process)(result.samples)
        self._notices += result.notices

    def _of_another(self, text: str, t: float, before: PageResult) -> PageResult:
        """Read a page that the reader makes nothing of as another engine's, where it is one's."""
        try:
            reader = reader_for(text, "the page")
        except SourceError:
            return before
        found = reader.read(text, t)
        if len(found.samples) > 1:
            was, self.reader, self._pages = self.reader.engine.ENGINE, reader, 0
            found.seen = Seen.EXCHANGED
            found.notices.append(f"another engine answers here now: {reader.engine.ENGINE}, before it was {was}")
        return found

    def _apart(self, number: int) -> Labeller:
        if number not in self._labels:
            if len(self._labels) >= MOST_PROCESSES:
                del self._labels[next(iter(self._labels))]
            self._labels[number] = Labeller(f"engine {number + 1}")
        return self._labels[number]

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
