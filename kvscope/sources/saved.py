"""Pages without a series around them: one page, several one after another in a file, several files.

One page tells what was counted since the engine started: that is a segment of its own. Pages one after another carry no
time; their order, counts and shares are read, and their rates are as right as the spacing that is assumed.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.sources._pagelog import PageLog
from kvscope.sources._reader import reader_for
from kvscope.sources.fetch import PAGE_LIMIT
from kvscope.sources.mapping import json_number
from kvscope.sources.source import Description, Mark, Poll
from kvscope.sources.trtllm_json import EMPTY, entries_of, is_iterations, iterations_or_error
from probes import border
from probes.catalog import COUNTER, metric_of
from probes.sample import Labels, Sample

SPACING_S = 15.0
"""Assumed between pages that say nothing of it."""
_MOST_BYTES = 8 * PAGE_LIMIT
SINCE_START = "since start"
_SERIES = re.compile(rb"^([A-Za-z_:][\w:]*(?:\{[^}\n]*\})?)\s", re.MULTILINE)


def read_text(path: Path, most: int = _MOST_BYTES) -> str:
    """Return a saved text, plain or gzipped. SourceError when it cannot be read or is larger than ``most``."""
    try:
        with border.open_packed(path) as file:
            data = file.read(most + 1)
    except border.Refused as error:
        raise SourceError(str(error)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{path}: the gzip stream is cut or damaged ({error})") from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    if len(data) > most:
        raise SourceError(f"{path}: larger than {most >> 20} MiB; that is no engine's metrics page")
    return data.decode("utf-8", errors="replace")


def split_pages(text: str) -> list[str]:
    """Cut pages that follow one another in one text: a page begins where its first series comes again."""
    data = text.encode("utf-8", errors="replace")
    first = _SERIES.search(data)
    if first is None:
        return [text]
    # Found by its whole head, labels and all: a series stands on a page once.
    again = re.compile(rb"^" + re.escape(first[1]) + rb"[ \t]", re.MULTILINE)
    starts = [one.start() for one in again.finditer(data)]
    if len(starts) < 2:
        return [text]
    cuts = [0, *(_head_of(data, start) for start in starts[1:]), len(data)]
    pages = [data[begin:end].decode("utf-8", errors="replace") for begin, end in pairwise(cuts)]
    return [page for page in pages if page.strip()]


def _head_of(data: bytes, start: int) -> int:
    """Return where the comment lines above a series begin."""
    while start:
        line = data.rfind(b"\n", 0, start - 1) + 1
        if not data.startswith(b"#", line):
            return start
        start = line
    return 0


class PagesSource:
    """Pages of one engine in their order; ``times`` None: nobody says when they were taken."""

    def __init__(
        self,
        texts: Sequence[str],
        target: str,
        ends_s: float,
        times: Sequence[float] | None = None,
        *,
        alone: bool = True,
    ) -> None:
        if not texts:
            raise SourceError(f"{target}: not one page")
        self._texts = texts
        self._target = target
        self._assumed = times is None and len(texts) > 1
        self._times = times or [ends_s - SPACING_S * (len(texts) - 1 - index) for index in range(len(texts))]
        self._log = PageLog(reader_for(texts[0], target, alone=alone))
        self._given = False

    def describe(self) -> Description:
        tags = dict(self._log.reader.tags)
        note = "one saved page" if len(self._texts) == 1 else f"{len(self._texts)} saved pages"
        dated = not self._assumed and self._log.reader.engine.ROLE != "machine"
        return Description(
            "series", self._target, tags["engine"], tags.get("version", ""), tags, note=note, dated=dated
        )

    def poll(self) -> Poll:
        if self._given:
            return Poll([], ended=True)
        self._given = True
        for text, t in zip(self._texts, self._times, strict=True):
            self._log.page(text, t)
        poll = self._log.take(ended=True)
        notices = list(poll.notices)
        if self._assumed:
            notices.append(
                f"the pages say no time: taken as {SPACING_S:g} s apart; counts and shares are right all the same"
            )
        if len(self._texts) == 2:
            notices.append(TWO)
        if len(self._texts) > 1 or self._log.reader.engine.ROLE == "machine":
            return Poll(between_two(poll.samples), poll.marks, tuple(notices), ended=True)
        return self._since_start(poll.samples, notices)

    def close(self) -> None:
        """Nothing is held open."""

    def _since_start(self, samples: Sequence[Sample], notices: list[str]) -> Poll:
        """Give the page's totals as one stretch from the engine's start, where the page says when that was."""
        started = next((one.value for one in samples if one.metric == "process.start_time"), None)
        counts = [one for one in samples if _counts(one.metric)]
        now = self._times[0]
        if started is None or started <= 0 or not counts:
            notices.append("one page without its engine's start time: totals of an unknown time, no rate can be told")
            return Poll(list(samples), notices=tuple(notices), ended=True)
        if started >= now:
            # A page copied later keeps its words, not its date: it is at least as young as its engine.
            notices.append("the file is older than its engine's start: the page's age is not known, rates are not told")
            now = started + 1.0
        notices.append(
            "one page: averages since the engine started, idle times too; states of one moment are not judged"
        )
        began = [one._replace(value=0.0, t=started) for one in counts]
        just = [one._replace(t=now - 1e-3) for one in counts]
        found = [*began, *just, *(one._replace(t=now) for one in samples)]
        mark = Mark(SINCE_START, started, dict(self._log.reader.tags))
        return Poll(found, (mark,), tuple(notices), ended=True)


TWO = "two pages: what was counted between them is told; states of two moments are not judged"


def between_two(samples: Sequence[Sample]) -> list[Sample]:
    """Return samples so that what grew between two pages is known whole; unchanged where there are more pages.

    Two readings tell exactly what was counted between them, and nothing of how it came: the last is said twice.
    """
    times = sorted({one.t for one in samples})
    if len(times) != 2:
        return list(samples)
    just = [one._replace(t=times[1] - 1e-3) for one in samples if one.t == times[1] and _counts(one.metric)]
    return sorted([*samples, *just], key=lambda one: one.t)


def _counts(metric: str) -> bool:
    line = metric_of(metric)
    return line is not None and (line.kind == COUNTER or metric != line.name)


def pages_of(path: Path, *, alone: bool = True) -> PagesSource:
    """Return the page or pages of a file. Not ``alone``: a machine's exporter may have written it."""
    text = read_text(path)
    return PagesSource(split_pages(text), str(path), path.stat().st_mtime, alone=alone)


def one_engine(texts: Sequence[str], target: str) -> bool:
    """Whether pages are one engine's, one after another: what only grows never falls, and the start is one."""
    last: dict[tuple[str, Labels], float] = {}
    for text in texts:
        try:
            reader = reader_for(text, target)
        except SourceError:
            return False
        now = {(one.metric, one.labels): one.value for one in reader.read(text, 0.0).samples}
        start: tuple[str, Labels] = ("process.start_time", ())
        if last.get(start) != now.get(start) and last:
            return False
        if any(value < last.get(key, value) for key, value in now.items() if _counts(key[0])):
            return False
        last = now
    return len(texts) > 1


def times_of(paths: Iterable[Path]) -> list[float] | None:
    """Return when files were written, where that is their order; a copy made all at once says nothing."""
    times = [path.stat().st_mtime for path in paths]
    apart = [after - before for before, after in pairwise(times)]
    return times if apart and all(gap >= 0.5 for gap in apart) else None


class SavedIterations:
    """A saved list of iterations, or one a line: each is as long as it says, and follows the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = read_text(path)
        if not is_iterations(text):
            documents = border.embedded(text)
            entries = (one for found in documents for one in (found if isinstance(found, list) else [found]))
            text = json.dumps(list(entries))
        self._reader = iterations_or_error(text, str(path))
        self._entries = list(entries_of(text))
        if not self._entries:
            raise SourceError(f"{path}: {EMPTY}")

    def describe(self) -> Description:
        tags = dict(self._reader.tags)
        return Description("series", str(self._path), tags["engine"], tags=tags, note=_SAVED, dated=False)

    def poll(self) -> Poll:
        entries, self._entries = self._entries, []
        seconds = [max(0.0, (json_number(entry.get("iterLatencyMS")) or 0.0) / 1e3) for entry in entries]
        t = self._path.stat().st_mtime - sum(seconds)
        samples: list[Sample] = []
        for entry, spent in zip(entries, seconds, strict=True):
            t += spent
            samples += self._reader.read(json.dumps([entry]), t).samples
        return Poll(samples, notices=(_SAVED,) if entries else (), ended=True)

    def close(self) -> None:
        """Nothing is held open."""


_SAVED = "saved iterations: each follows the one before at once, so time between them is not seen"
