"""Reading a recording: as a stream in time order, one series of it, or zoomed out without unpacking it."""

from __future__ import annotations

import heapq
import shutil
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kvscope.errors import SourceError
from kvscope.recording import schema
from kvscope.recording.recorder import labels_from
from kvscope.recording.schema import checked_series, to_micros, unpack_tick, unpack_times, unpack_values
from probes import border
from probes.catalog import metric_of
from probes.sample import Labels, Sample

T = TypeVar("T")
_T = attrgetter("t")
_SAMPLE = partial(tuple.__new__, Sample)
"""Four values as a sample, without a call of Python code: an hour of 500 series has a million of them."""
_SENSELESS = (ValueError, TypeError, KeyError, IndexError, OverflowError, ZeroDivisionError, struct.error, zlib.error)
"""What decoding raises on bytes that nobody wrote."""

_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What SQLite raises on a damaged file; the second when even its message quotes bytes that are no text."""

_MOST_MENDED = 16 << 30
"""Longest file mended in a copy; the copy has holes, but a header that lies must not fill the disk."""


class RecordedMark(NamedTuple):
    """A mark as it was recorded: a segment starts at ``t``."""

    name: str
    t: float
    tags: dict[str, str]


class Recording:
    """One recording, open for reading; its writer may still be at work.

    ``damage`` says after reading what could not be read, or is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self._times: dict[bytes, list[float]] = {}
        self._db = _open(path)
        try:
            schema.check(self._db, path)
            rows = self._db.execute("SELECT key, value FROM header").fetchall()
            self.header: dict[str, Any] = dict(self._whole(rows, _header_row))
            rows = self._db.execute("SELECT id, metric, labels FROM series").fetchall()
            self._series = dict(self._whole(rows, lambda *row: (row[0], checked_series(row[1], labels_from(row[2])))))
        except (*_UNREADABLE, ValueError) as error:
            self._db.close()
            raise SourceError(f"{path}: nothing of this recording can be read ({error})") from error
        except SourceError:
            self._db.close()
            raise

    @property
    def marks(self) -> list[RecordedMark]:
        """Marks in time order."""
        rows = self._rows("SELECT name, t, tags FROM marks ORDER BY t, rowid")
        marks = self._whole(rows, _mark)
        return sorted(marks, key=lambda mark: mark.t)

    @property
    def count(self) -> int:
        """Values folded into chunks."""
        rows = self._rows("SELECT coalesce(sum(n), 0) FROM chunks")
        try:
            return border.whole(rows[0][0], f"{self.path}: values") if rows else 0
        except border.Refused as error:
            self.damage = self.damage or f"{error}; what is whole was read"
            return 0

    def samples(self, every: int = 1) -> Iterator[Sample]:
        """Yield every sample in time order, or every n-th of a series; holds one generation (300 s) at a time.

        The last value of a chunk is always there, and so are all values of finished requests.
        """
        return chain.from_iterable(self.stretches(every))

    def stretches(self, every: int = 1) -> Iterator[list[Sample]]:
        """As ``samples``, a generation at a time: who takes everything at once need not take it one by one."""

        def thinned(number: int, *rest: Any) -> list[Sample]:
            return self._unpacked(number, every if every > 1 and not self._is_observed(number) else 1, *rest)

        for generation in self._generations():
            yield self._in_order(generation, thinned)
        yield list(self._waiting())

    def overview(self) -> Iterator[list[Sample]]:
        """Yield about two samples per chunk: a counter's first and last value, a gauge's mean in the middle.

        Values of finished requests are all there: their quantiles could not be had from a summary.
        """
        for generation in self._generations():
            yield self._in_order(generation, self._summary)
        yield list(self._waiting())

    def points(self, metric: str, labels: Labels = ()) -> Iterator[tuple[float, float]]:
        """Yield (time, value) of one series, oldest first; touches no other series."""
        number = next((key for key, found in self._series.items() if found == (metric, labels)), None)
        query = (
            "SELECT t.data, c.data FROM chunks c JOIN times t ON t.id = c.times WHERE series = ? ORDER BY generation"
        )
        rows = self._rows(query, number)
        for pairs in self._whole(rows, lambda t, v: list(zip(unpack_times(t), unpack_values(v), strict=True))):
            yield from pairs
        for sample in self._waiting():
            if sample.metric == metric and sample.labels == labels:
                yield sample.t, sample.value

    def close(self) -> None:
        self._db.close()

    def _generations(self) -> list[int]:
        return [
            generation for (generation,) in self._rows("SELECT DISTINCT generation FROM chunks ORDER BY generation")
        ]

    def _chunks(self, generation: int) -> list[Any]:
        return self._rows(
            "SELECT series, start_s, end_s, n, first, last, total, t.data, c.data FROM chunks c "
            "JOIN times t ON t.id = c.times WHERE generation = ?",
            generation,
        )

    def _in_order(self, generation: int, made: Callable[..., list[Sample]]) -> list[Sample]:
        """What ``made`` makes of each chunk of a generation, in time order."""
        self._times.clear()
        found = list(chain.from_iterable(self._whole(self._chunks(generation), made)))
        found.sort(key=_T)
        return found

    def _summary(
        self, number: int, start: float, end: float, n: int, first: float, last: float, total: float, *rest: Any
    ) -> list[Sample]:
        metric, labels = self._series[number]
        known = metric_of(metric)
        if self._is_observed(number):
            return self._unpacked(number, 1, *rest)
        if known is not None and known.kind == "gauge":
            return [Sample(metric, total / n, (start + end) / 2, labels)]
        ends = [(border.number(first, metric), border.time_s(start, "start")), (float(last), border.time_s(end, "end"))]
        return [Sample(metric, value, t, labels) for value, t in ends]

    def _unpacked(self, number: int, every: int, *rest: Any) -> list[Sample]:
        """Every n-th value of a chunk, and its last."""
        metric, labels = self._series[number]
        # Chunks of a generation share their times: unpacked once, not once a series.
        times = self._times.get(rest[-2])
        if times is None:
            times = self._times[rest[-2]] = unpack_times(rest[-2])
        values = unpack_values(rest[-1])
        if len(times) != len(values):
            raise ValueError(f"{len(times)} times for {len(values)} values")
        if every > 1:
            times, values = times[:-1:every] + times[-1:], values[:-1:every] + values[-1:]
        return list(map(_SAMPLE, zip(repeat(metric), values, times, repeat(labels))))

    def _is_observed(self, number: int) -> bool:
        """Whether each value is one finished request's (a histogram's parts are counters)."""
        metric = self._series[number][0]
        known = metric_of(metric)
        return known is not None and known.kind == "observation" and known.name == metric

    def _waiting(self) -> Iterator[Sample]:
        for samples in self._whole(self._rows("SELECT data FROM ticks ORDER BY id"), self._tick):
            yield from samples

    def _tick(self, data: bytes) -> list[Sample]:
        found = []
        for t, ids, values in unpack_tick(data):
            for number, value in zip(ids, values, strict=True):
                metric, labels = self._series[number]
                found.append(Sample(metric, value, to_micros(t), labels))
        return found

    def _whole(self, rows: Iterable[tuple[Any, ...]], made: Callable[..., T]) -> Iterator[T]:
        """Yield what each row makes; a row that damage made senseless is left out, and that is said in ``damage``."""
        for row in rows:
            try:
                found = made(*row)
            except _SENSELESS as error:
                self.damage = self.damage or f"{self.path}: damaged ({error!r}); what is whole was read"
                continue
            yield found

    def _rows(self, query: str, *parameters: object) -> list[Any]:
        """Run a query; where the file is damaged, keep what came and say so in ``damage``."""
        found: list[Any] = []
        try:
            for row in self._db.execute(query, parameters):
                found.append(row)
        except _UNREADABLE as error:
            self.damage = self.damage or f"{self.path}: cut or damaged ({error}); what is whole was read"
        return found


def _header_row(key: object, value: object) -> tuple[str, Any]:
    return border.text(key, "key"), border.document(_text(value), "header")


def _mark(name: object, t: object, tags: object) -> RecordedMark:
    found = border.tags(border.document(_text(tags), "tags"), "tags")
    return RecordedMark(border.text(name, "mark"), border.time_s(t, "t"), found)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise border.Refused(f"{border.shown(value)}, expected text")
    return value


def read(path: Path) -> Iterator[Sample | RecordedMark]:
    """Yield a whole recording in time order; a mark comes before the samples of its own time."""
    recording = Recording(path)
    try:
        yield from merged(recording.samples(), recording.marks)
    finally:
        recording.close()


def merged(samples: Iterator[Sample], marks: list[RecordedMark]) -> Iterator[Sample | RecordedMark]:
    """Merge both in time order, a mark before the samples of its own time."""
    return heapq.merge(marks, samples, key=lambda item: item.t)


def _open(path: Path) -> sqlite3.Connection:
    """Open for reading; a file in a place where nothing may be written is read as if nobody else had it."""
    reason: Exception | None = None
    for option in ("mode=ro", "mode=ro&immutable=1"):
        try:
            return _connect(path, option)
        except sqlite3.OperationalError as error:
            reason = error
        except _UNREADABLE as error:
            return _open_cut(path, error)
    raise SourceError(f"{path}: {reason}")


def _connect(path: Path, option: str) -> sqlite3.Connection:
    # Opened in one thread and read in another (the dashboard's), never by two at once.
    db = sqlite3.connect(f"{path.resolve().as_uri()}?{option}", uri=True, isolation_level=None, check_same_thread=False)
    try:
        # One transaction for everything: a writer that folds meanwhile would show us values twice, or never.
        db.execute("BEGIN")
        named = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type <> 'index'")}
        pretended = schema.NAMED & (named - {str(name) for (name,) in db.execute(schema.REAL_TABLES)})
    except _UNREADABLE:
        db.close()
        raise
    if pretended:
        db.close()
        raise SourceError(f"{path}: {min(pretended)} is no table of its own; expected a recording as kvscope writes it")
    return db


def _open_cut(path: Path, why: Exception) -> sqlite3.Connection:
    """Open a copy of a file that was cut short, made as long again as its header says.

    SQLite refuses a file shorter than that as a whole, but reads every page of one that is only damaged.
    """
    with path.open("rb") as file:
        head = file.read(schema.HEADER_BYTES)
        length = schema.stated_length(head)
        if not path.stat().st_size < length <= _MOST_MENDED:
            raise SourceError(f"{path}: nothing of this recording can be read ({why})") from why
        with tempfile.NamedTemporaryFile(prefix="kvscope-") as copy:
            file.seek(0)
            shutil.copyfileobj(file, copy)
            copy.truncate(length)
            copy.flush()
            try:
                return _connect(Path(copy.name), "immutable=1")
            except _UNREADABLE as error:
                raise SourceError(f"{path}: nothing of this recording can be read ({error})") from error
