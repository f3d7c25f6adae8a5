"""A recording played back: an SQLite file of ours, or a small JSON-lines fixture."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError
from kvscope.recording.fixture import KEY, VERSION, parse_line
from kvscope.recording.reader import RecordedMark, Recording, merged
from kvscope.recording.recorder import CHUNK_S
from kvscope.recording.schema import SQLITE_MAGIC
from kvscope.sources._lines import JsonLines
from kvscope.sources._pacer import Pacer
from kvscope.sources.clock import clock_text
from kvscope.sources.source import Description, Mark, Poll
from probes import border
from probes.sample import Sample

_MOST_IN_FULL = 1_000_000
"""Values taken at once; of a longer recording only every n-th of a series is, unless it is played at a speed."""

_MOST_UNPACKED = 8_000_000
"""Values unpacked at once; of a still longer one only the chunks' summaries are read."""

Item = Sample | RecordedMark


class RecordingSource:
    """Replays a recording: everything at the first poll, or paced when ``speed`` is given."""

    def __init__(self, path: Path, *, speed: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._notices: list[str] = []
        self._recording: Recording | None = None
        self._lines: JsonLines | None = None
        self._marks: list[RecordedMark] = []
        self._stretches: Iterator[list[Sample]] = iter(())
        items = self._from_sqlite(speed) if _is_sqlite(path) else self._from_lines()
        self._pacer = Pacer(((item.t, item) for item in items), speed, clock)
        self._next = next(self._stretches, [])
        if self._pacer.ended and not self._next and not self._marks:
            raise SourceError(self._damage() or f"{path}: a recording with nothing in it")

    def describe(self) -> Description:
        source, tags = self._said("source"), self._said("tags")
        note = "recording" + (" (synthetic)" if self._header.get("synthetic") else "")
        return Description(
            "recording",
            str(self._path),
            str(source.get("engine") or tags.get("engine", "")),
            str(source.get("version") or tags.get("version", "")),
            tags,
            note=note,
            config=self._header["config"] if isinstance(self._header.get("config"), str) else "",
        )

    def _said(self, name: str) -> dict[str, str]:
        """Return what the header says under this name; where that is no set of tags, nothing, and it is told."""
        try:
            return border.tags(self._header.get(name), f"{self._path}: {name}")
        except border.Refused as error:
            if str(error) not in self._notices:
                self._notices.append(str(error))
            return {}

    def poll(self) -> Poll:
        samples, self._next = self._next, []
        with _without_collector():
            samples.extend(chain.from_iterable(self._stretches))
        marks, self._marks = [Mark(mark.name, mark.t, mark.tags) for mark in self._marks], []
        for item in self._pacer.due():
            if isinstance(item, Sample):
                samples.append(item)
            else:
                marks.append(Mark(item.name, item.t, item.tags))
        if self._pacer.ended and (damage := self._damage()):
            self._notices.append(damage)
        notices, self._notices = tuple(self._notices), []
        return Poll(samples, tuple(marks), notices, self._pacer.ended)

    def close(self) -> None:
        if self._recording is not None:
            self._recording.close()

    def _damage(self) -> str:
        if self._recording is not None:
            return self._recording.damage
        return self._lines.damage if self._lines is not None else ""

    def _from_sqlite(self, speed: float | None) -> Iterator[Item]:
        recording = self._recording = Recording(self._path)
        self._header: dict[str, Any] = recording.header
        if speed is not None:
            return merged(recording.samples(), recording.marks)
        count = recording.count
        every = -(-count // _MOST_IN_FULL) or 1
        if count > _MOST_UNPACKED:
            self._notices.append(f"{count} values: read as summaries of up to {CHUNK_S:g} s, not one by one")
        elif every > 1:
            self._notices.append(f"{count} values: one in {every} of a series was read")
        # All at once needs no merging: samples and marks are told apart in a poll anyway.
        self._marks = recording.marks
        self._stretches = filter(None, recording.overview() if count > _MOST_UNPACKED else recording.stretches(every))
        return iter(())

    def _from_lines(self) -> Iterator[Item]:
        self._lines = JsonLines(self._path)
        lines = iter(self._lines)
        number, header = next(lines, (1, {}))
        if header.get(KEY) != VERSION:
            found = f"version {border.shown(header[KEY])}" if KEY in header else "none"
            raise SourceError(
                self._lines.damage
                or f'{self._path}, line {number}: {found}; expected {{"{KEY}": {VERSION}, …}}, a recording this '
                "kvscope reads"
            )
        self._header = header
        return self._items(lines)

    def _items(self, lines: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[Item]:
        last = float("-inf")
        for number, line in lines:
            try:
                found = parse_line(line)
            except ValueError as error:
                raise SourceError(f"{self._path}, line {number}: {error}") from error
            items: list[Item] = [found] if isinstance(found, RecordedMark) else list(found)
            if items and items[0].t < last:
                raise SourceError(f"{self._path}, line {number}: goes back in time to {clock_text(items[0].t)}")
            for item in items:
                last = item.t
                yield item


@contextmanager
def _without_collector() -> Iterator[None]:
    """A million samples form no cycle, yet the garbage collector would look through all of them again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _is_sqlite(path: Path) -> bool:
    try:
        with border.open_file(path) as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except border.Refused as error:
        raise SourceError(str(error)) from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
