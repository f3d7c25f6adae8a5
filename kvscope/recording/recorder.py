"""Writing a recording."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import sqlite3
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Protocol, TypeAlias

from kvscope.errors import SourceError, UsageError
from kvscope.recording import schema
from kvscope.recording.schema import pack_tick, pack_times, pack_values, to_micros, unpack_tick
from kvscope.store import MarkLike
from probes import border
from probes.sample import Labels, Sample

CHUNK_S = 300.0
SETTLE_S = 0.5
"""How often what was written is brought into the file itself: a copy of it misses so much, and a poll, at most."""
_MOST_WAITING = 200_000
"""Values that may wait to be folded: a folding of more would be felt on screen."""

_TAG_LIMIT = 256
"""Longest name and tag value kept: a tag names a setting, and nothing longer belongs in a recording."""


Times = tuple[float, ...]
Values = tuple[float, ...]
Tick: TypeAlias = "tuple[float, array[int], array[float]]"
"""One time, the ids of the series that have a value at it, and the values."""


class Described(Protocol):
    """What a source says of itself; ``kvscope.sources`` owns the class, and stands above this file."""

    @property
    def kind(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def note(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def config(self) -> str: ...


class Polled(Protocol):
    """What one poll of a source brought."""

    @property
    def samples(self) -> Sequence[Sample]: ...
    @property
    def marks(self) -> Sequence[MarkLike]: ...


class Recorder:
    """Appends to a recording, new or ours from before. One writer; readers may look at any time."""

    def __init__(self, path: Path, source: Described | None = None, *, synthetic: bool = False) -> None:
        self.path = path
        self.failed = ""
        """Why nothing is written any more (a full disk); what was written before is whole."""
        fresh = _create_private(path)
        self._lock = locked(path)
        db: sqlite3.Connection | None = None
        try:
            # Opened in one thread and written in another (the dashboard's), never by two at once.
            self._db = db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            if fresh:
                schema.lay_out(self._db)
                self._write_header(source, synthetic)
            schema.check(self._db, path)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            # What is written goes into the file itself within a second: a copy of the file alone is a recording.
            self._db.execute("PRAGMA wal_autocheckpoint=0")
            rows_of_series = self._db.execute("SELECT id, metric, labels FROM series").fetchall()
        except (sqlite3.DatabaseError, SourceError) as error:
            if db is not None:
                db.close()
            os.close(self._lock)
            raise UsageError(f"{path}: cannot be appended to ({error}); give another file name") from error
        self._settled_s = -math.inf
        self._ids: dict[tuple[str, Labels], int] = {
            (metric, labels_from(labels)): number for number, metric, labels in rows_of_series
        }
        self._last_id = max(self._ids.values(), default=0)
        self._oldest = math.inf
        self._waiting = 0
        self._fold()

    def write(self, poll: Polled) -> None:
        """Write what a poll brought, each mark before the samples of its own time. SourceError on a full disk."""
        rest = list(poll.samples)
        for mark in sorted(poll.marks, key=lambda mark: mark.t):
            cut = bisect_left(rest, mark.t, key=lambda sample: sample.t)
            self.add(rest[:cut])
            self.mark(mark)
            rest = rest[cut:]
        self.add(rest)

    def add(self, samples: Iterable[Sample]) -> None:
        """Write one tick: the samples of one poll. They survive a killed process once this returns."""
        runs: dict[float, tuple[list[int], list[float]]] = {}
        fresh: list[tuple[int, str, str]] = []
        for metric, value, t, labels in samples:
            if not border.finite(value):
                continue
            number = self._ids.get((metric, labels))
            if number is None:
                text = json.dumps(labels)
                number = self._known(metric, text)
                if number is None:
                    number = self._last_id = self._last_id + 1
                    fresh.append((number, metric, text))
                self._ids[metric, labels] = number
            run = runs.get(t)
            if run is None:
                run = runs[t] = ([], [])
            run[0].append(number)
            run[1].append(value)
        if not runs:
            return
        try:
            with _transaction(self._db):
                if fresh:
                    self._db.executemany("INSERT INTO series VALUES (?, ?, ?)", fresh)
                self._db.execute("INSERT INTO ticks (data) VALUES (?)", (pack_tick(runs),))
        except sqlite3.Error as error:
            refused = {number for number, _, _ in fresh}
            self._ids = {key: number for key, number in self._ids.items() if number not in refused}
            raise self._lost(error) from error
        self._settle()
        self._oldest = min(self._oldest, *runs)
        self._waiting += sum(len(ids) for ids, _ in runs.values())
        if max(runs) - self._oldest >= CHUNK_S or self._waiting >= _MOST_WAITING:
            self._fold()

    def mark(self, mark: MarkLike) -> None:
        """Write a mark. Chunks end here, so that none spans two segments."""
        row = (to_micros(mark.t), mark.name[:_TAG_LIMIT], json.dumps(_short(mark.tags)))
        self._fold()
        try:
            self._db.execute("INSERT INTO marks VALUES (?, ?, ?)", row)
        except sqlite3.Error as error:
            raise self._lost(error) from error
        self._settle()

    def close(self) -> None:
        """Fold everything into one file that needs no companion; where that cannot be, what was written stays whole."""
        try:
            with contextlib.suppress(sqlite3.Error, SourceError):
                if not self.failed:
                    self._fold()
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.execute("PRAGMA journal_mode=DELETE")
            self._db.close()
        finally:
            os.close(self._lock)

    def _settle(self) -> None:
        """Bring what was written into the file itself, at most once in ``SETTLE_S``."""
        now = time.monotonic()
        if now - self._settled_s >= SETTLE_S:
            self._settled_s = now
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _lost(self, error: sqlite3.Error) -> SourceError:
        self.failed = f"{self.path}: nothing more can be recorded ({error}); what was written before is whole"
        return SourceError(self.failed)

    def _write_header(self, source: Described | None, synthetic: bool) -> None:
        words = ("kind", "target", "engine", "version", "note")
        header = {
            "source": _short({word: getattr(source, word) for word in words} if source is not None else {}),
            "tags": _short(source.tags if source is not None else {}),
            "synthetic": synthetic,
            "created_s": time.time(),
        }
        if source is not None and source.config:
            header["config"] = source.config
        rows = [(key, json.dumps(value)) for key, value in header.items()]
        self._db.executemany("INSERT INTO header VALUES (?, ?)", rows)

    def _fold(self) -> None:
        """Turn the ticks into one chunk per series, in one transaction: a kill leaves the one or the other."""
        series = _by_series(unpack_tick(data) for (data,) in self._db.execute("SELECT data FROM ticks ORDER BY id"))
        self._oldest, self._waiting = math.inf, 0
        if series:
            try:
                with _transaction(self._db):
                    self._write_chunks(series)
                    self._db.execute("DELETE FROM ticks")
            except sqlite3.Error as error:
                raise self._lost(error) from error
        # Label sets that ended would pile up for as long as a recording runs: the file knows them.
        self._ids = {key: number for key, number in self._ids.items() if number in series}

    def _known(self, metric: str, labels: str) -> int | None:
        """Return the number that the file has for a series which said nothing lately."""
        try:
            row = self._db.execute("SELECT id FROM series WHERE metric = ? AND labels = ?", (metric, labels)).fetchone()
        except sqlite3.Error as error:
            raise self._lost(error) from error
        return None if row is None else int(row[0])

    def _write_chunks(self, series: Mapping[int, tuple[Times, Values]]) -> None:
        generation = self._db.execute("SELECT coalesce(max(generation), 0) + 1 FROM chunks").fetchone()[0]
        shared: dict[Times, int | None] = {}
        rows = []
        for number, (times, values) in series.items():
            if times not in shared:
                row = self._db.execute("INSERT INTO times (data) VALUES (?)", (pack_times(times),))
                shared[times] = row.lastrowid
            summary = (values[0], values[-1], min(values), max(values), math.fsum(values))
            where = (number, generation, to_micros(times[0]), to_micros(times[-1]), len(values))
            rows.append((*where, *summary, shared[times], pack_values(values)))
        self._db.executemany(
            "INSERT INTO chunks (series, generation, start_s, end_s, n, first, last, low, high, total, times, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )


def _by_series(ticks: Iterable[Iterable[Tick]]) -> dict[int, tuple[Times, Values]]:
    """Return series id → its times and values, oldest first.

    Ticks of the same series, which nearly all are, are turned as a whole: that is what makes folding cheap.
    """
    alike: dict[bytes, list[Tick]] = {}
    for tick in ticks:
        for run in tick:
            alike.setdefault(run[1].tobytes(), []).append(run)
    series: dict[int, tuple[Times, Values]] = {}
    for runs in alike.values():
        times = tuple(t for t, _, _ in runs)
        for number, values in zip(runs[0][1], zip(*(values for _, _, values in runs), strict=True), strict=True):
            before = series.get(number)
            series[number] = (times, values) if before is None else _joined(before, (times, values))
    return series


def _joined(before: tuple[Times, Values], more: tuple[Times, Values]) -> tuple[Times, Values]:
    pairs = sorted(zip(before[0] + more[0], before[1] + more[1], strict=True), key=itemgetter(0))
    return tuple(t for t, _ in pairs), tuple(value for _, value in pairs)


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    return {name[:_TAG_LIMIT]: value[:_TAG_LIMIT] for name, value in tags.items()}


def labels_from(text: str) -> Labels:
    """Return labels from their JSON. ValueError, TypeError where it holds none."""
    return tuple([(name, value) for name, value in border.items(border.document(text, "labels"), "labels", 64)])


def _create_private(path: Path) -> bool:
    """Create the file with mode 0600; return False when it was there. SQLite gives its companions the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        try:
            with border.open_file(path) as file:
                return not file.read(1)
        except border.Refused as error:
            raise UsageError(f"{error}: a place where a recording can be written") from error
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected a place where a recording can be written") from error
    return True


def locked(path: Path) -> int:
    """Return a handle that holds the recording's only right to write until it is closed, or its process ends.

    UsageError when somebody else is writing it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise UsageError(f"{path}: another recorder is writing it; give another file name") from error
    return handle


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # SQLite has rolled back by itself where the disk was full.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
