"""Reading a flight recorder: of a running engine, or of one that died."""

from __future__ import annotations

import json
import math
import mmap
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from probes.layout import (
    CLOSED_OFFSET,
    HEADER_OFFSET,
    HEADS_OFFSET,
    HEARTBEAT_OFFSET,
    LAYOUT_VERSION,
    MAGIC,
    RING_NAMES,
    ROW_HEAD,
    SUPERBLOCK,
    RingShape,
)
from probes.runtime import process_start_ticks, runtime_dir

_Row = TypeVar("_Row")
_MANY = 100


class RingError(Exception):
    """The file is no flight recorder that this version can read; the message says why."""


class RingReader:
    """Rows of one flight recorder, each read once per reader by its sequence number.

    ``header`` is what the writer gave plus ``columns``, ``request_columns``, ``process`` {pid, start_ticks} and
    ``anchor`` {wall, monotonic}. ``torn`` counts rows skipped because they were being written or half-written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = _open(path)
        _, version, length, *_ = SUPERBLOCK.unpack_from(self._map, 0)
        if version != LAYOUT_VERSION:
            raise RingError(f"{path}: flight recorder layout {version}, expected {LAYOUT_VERSION}")
        try:
            self.header: dict[str, Any] = json.loads(self._map[HEADER_OFFSET : HEADER_OFFSET + length])
            self._shapes = [RingShape(**self.header["rings"][name]) for name in RING_NAMES]
            self.columns: list[str] = self.header["columns"]
            self.request_columns: list[str] = self.header["request_columns"]
            anchor = self.header["anchor"]
            self._to_wall = float(anchor["wall"]) - float(anchor["monotonic"])
            self._check()
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise RingError(f"{path}: the header of this flight recorder cannot be read ({error})") from error
        if self._shapes[-1].end > len(self._map):
            raise RingError(f"{path}: truncated: {len(self._map)} bytes, expected {self._shapes[-1].end}")
        self.torn = 0
        self._unpack = struct.Struct(f"<{len(self.columns)}d").unpack
        self._unpack_request = struct.Struct(f"<{len(self.request_columns)}d").unpack

    @property
    def pid(self) -> int:
        return int(self.header["process"]["pid"])

    def is_alive(self) -> bool:
        """Whether the very process that wrote this (pid and start time) still runs."""
        return process_start_ticks(self.pid) == self.header["process"]["start_ticks"] and not self.closed

    @property
    def closed(self) -> bool:
        """Whether the writer ended in good order."""
        return bool(struct.unpack_from("<Q", self._map, CLOSED_OFFSET)[0])

    @property
    def heartbeat_s(self) -> float:
        """Wall time of the last write, seconds since the epoch."""
        return self.wall(float(struct.unpack_from("<d", self._map, HEARTBEAT_OFFSET)[0]))

    def wall(self, monotonic_s: float) -> float:
        """Turn a row's monotonic time into seconds since the epoch."""
        return monotonic_s + self._to_wall

    def steps(self, since: int = 0, most: int | None = None) -> list[tuple[int, tuple[float, ...]]]:
        """Return (seq, values by column) of the step rows after ``since`` that are still held, oldest first.

        No more than ``most`` of them when it is given; the rest is there to be asked for.
        """
        return self._rows(0, since, self._unpack, most)

    def requests(self, since: int = 0) -> list[tuple[int, tuple[float, ...]]]:
        """Return (seq, values by request column) of the finished requests after ``since``."""
        return self._rows(1, since, self._unpack_request)

    def events(self, since: int = 0) -> list[tuple[int, dict[str, Any]]]:
        """Return (seq, event) of the events after ``since``; ``t`` in an event is monotonic seconds."""
        return self._rows(2, since, json.loads)

    def close(self) -> None:
        self._map.close()

    def _rows(
        self, ring: int, since: int, decode: Callable[[bytes], _Row], most: int | None = None
    ) -> list[tuple[int, _Row]]:
        shape = self._shapes[ring]
        head = int(struct.unpack_from("<Q", self._map, HEADS_OFFSET + 8 * ring)[0])
        rows = []
        for seq in range(max(since + 1, head - shape.capacity + 1), head + 1):
            at = shape.row_offset(seq)
            row = self._map[at : at + shape.row_bytes]
            found, crc, length = ROW_HEAD.unpack_from(row)
            payload = row[ROW_HEAD.size : ROW_HEAD.size + length]
            if found != seq or zlib.crc32(payload) != crc:
                self.torn += 1
                continue
            try:
                rows.append((seq, decode(payload)))
            except (ValueError, struct.error):
                self.torn += 1
            if len(rows) == most:
                break
        if len(rows) > _MANY:
            # What was read through is not read again: its pages need not count as this process's memory.
            self._map.madvise(mmap.MADV_DONTNEED)
        return rows

    def _check(self) -> None:
        """ValueError when the header says what no writer writes: damage, or a file made to be read wrongly."""
        for shape in self._shapes:
            sizes = (shape.offset, shape.capacity - 1, shape.row_bytes - ROW_HEAD.size)
            if not all(isinstance(size, int) and size >= 0 for size in sizes):
                raise ValueError("a ring has no size")
        if not all(isinstance(self.header["process"][key], int) for key in ("pid", "start_ticks")):
            raise ValueError("it has no process")
        if not all(isinstance(name, str) for name in (*self.columns, *self.request_columns)):
            raise ValueError("a column has no name")
        if not math.isfinite(self._to_wall):
            raise ValueError("it has no clock")


def _open(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise RingError(f"{path}: not a flight recorder")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise RingError(f"{path}: {error.strerror}") from error
    if len(mapped) < HEADER_OFFSET:
        raise RingError(f"{path}: truncated: {len(mapped)} bytes, expected at least {HEADER_OFFSET}")
    return mapped


def find_rings(directory: Path | None = None) -> list[Path]:
    """Return the recorder files in the runtime directory, newest first."""
    directory = directory or runtime_dir()
    return sorted(directory.glob("engine-*.ring"), key=lambda path: path.stat().st_mtime, reverse=True)


def remove_stale(directory: Path | None = None) -> list[Path]:
    """Delete the recorders of dead processes; return what was deleted. Never called unasked: they are evidence."""
    removed = []
    for path in find_rings(directory):
        try:
            reader = RingReader(path)
        except RingError:
            continue
        alive = reader.is_alive()
        reader.close()
        if not alive:
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed
