"""A saved series of scrapes: JSON lines ``{"t": seconds, "text": page}``, plain or gzipped.

A line without ``text`` (``{"t": …, "status": null, "error": …}``) is a scrape that failed: a gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvscope.errors import SourceError
from kvscope.sources._lines import JsonLines
from kvscope.sources._pacer import Pacer
from kvscope.sources._pagelog import PageLog
from kvscope.sources._reader import reader_for
from kvscope.sources.clock import Straightener
from kvscope.sources.saved import TWO, between_two
from kvscope.sources.source import Description, Poll
from probes import border


class _Scrape(NamedTuple):
    t: float
    text: str
    error: str


class SeriesSource:
    """Replays saved scrapes: everything at the first poll, or paced when ``speed`` is given."""

    def __init__(
        self,
        path: Path,
        *,
        speed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._lines = JsonLines(path)
        self._read = scrapes = self._scrapes()
        # The engine is known from the first page that answered; what failed before it is kept for the first poll.
        waiting = []
        for scrape in scrapes:
            waiting.append(scrape)
            if scrape.text:
                break
        if not waiting or not waiting[-1].text:
            raise SourceError(self._lines.damage or f"{path}: no scrape with a page in it; expected lines {{t, text}}")
        self._log = PageLog(reader_for(waiting[-1].text, str(path)), Straightener())
        self._pacer = Pacer(((scrape.t, scrape) for scrape in _chained(waiting, scrapes)), speed, clock)
        self._told_damage = False
        self._pages = 0

    def describe(self) -> Description:
        tags = dict(self._log.reader.tags)
        return Description(
            "series", str(self._path), tags["engine"], tags.get("version", ""), tags, note="saved scrapes"
        )

    def poll(self) -> Poll:
        for scrape in self._pacer.due():
            if scrape.text:
                self._pages += 1
                self._log.page(scrape.text, scrape.t)
            else:
                self._log.failure(scrape.t, scrape.error)
        poll = self._log.take(ended=self._pacer.ended)
        if self._pacer.ended and self._pages == 2:
            poll = Poll(between_two(poll.samples), poll.marks, (*poll.notices, TWO), poll.ended)
        if self._pacer.ended and self._lines.damage and not self._told_damage:
            self._told_damage = True
            return Poll(poll.samples, poll.marks, (*poll.notices, self._lines.damage), poll.ended)
        return poll

    def close(self) -> None:
        self._read.close()

    def _scrapes(self) -> Generator[_Scrape, None, None]:
        for number, line in self._lines:
            try:
                t = border.time_s(line.get("t"), "time 't'")
            except border.Refused as error:
                raise SourceError(f"{self._path}, line {number}: {error}; expected lines {{t, text}}") from error
            text = line.get("text")
            yield _Scrape(t, text if isinstance(text, str) else "", _reason(line))


def _chained(first: list[_Scrape], rest: Iterator[_Scrape]) -> Iterator[_Scrape]:
    yield from first
    yield from rest


def _reason(line: dict[str, Any]) -> str:
    status = line.get("status")
    said = f"HTTP status {status}" if status is not None else str(line.get("error") or "no answer")
    return border.printable(said, 120)
