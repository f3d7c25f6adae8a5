"""Reading a flight recorder: of a running engine, or of one that died."""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from probes import border
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
from probes.runtime import is_stopped, process_start_ticks, runtime_dir

_Row = TypeVar("_Row")
SILENT_S = 10.0
"""A step takes less, prefill of a long prompt on a slow processor included."""
_STRETCH = 1 << 18
"""Bytes of rows read at once."""
_LONGEST_HEADER = 8 << 20
_LARGEST_FILE = 1 << 40
_LARGEST_PID = 1 << 31
_MOST_COLUMNS = 100_000


class RingError(Exception):
    """The file is no flight recorder that this version can read; the message says why."""


class RingReader:
    """Rows of one flight recorder, each read once per reader by its sequence number.

    ``header`` is what the writer gave plus ``columns``, ``request_columns``, ``process`` {pid, start_ticks} and
    ``anchor`` {wall, monotonic}. ``torn`` counts rows skipped because they were being written or half-written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1
        self._handle = _open(path)
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise
        self.torn = 0
        self._unpack = struct.Struct(f"<{len(self.columns)}d").unpack
        self._unpack_request = struct.Struct(f"<{len(self.request_columns)}d").unpack

    def _read_header(self) -> None:
        _, version, length, *_ = SUPERBLOCK.unpack(self._bytes(0, SUPERBLOCK.size))
        if version != LAYOUT_VERSION:
            raise RingError(f"{self.path}: flight recorder layout {version}, expected {LAYOUT_VERSION}")
        try:
            found = border.document(self._bytes(HEADER_OFFSET, min(length, _LONGEST_HEADER)), "header")
            self.header: dict[str, Any] = border.mapping(found, "header")
            rings = border.mapping(self.header.get("rings"), "rings")
            self._shapes = [_shape(border.mapping(rings.get(name), name), name) for name in RING_NAMES]
            self.columns = _columns(self.header.get("columns"), "columns")
            self.request_columns = _columns(self.header.get("request_columns"), "request_columns")
            anchor = border.mapping(self.header.get("anchor"), "anchor")
            wall, monotonic = border.time_s(anchor.get("wall"), "anchor.wall"), anchor.get("monotonic")
            self._to_wall = wall - border.time_s(monotonic, "anchor.monotonic")
            process = border.mapping(self.header.get("process"), "process")
            self.pid = border.whole(process.get("pid"), "process.pid", 0, _LARGEST_PID)
            self.start_ticks = border.whole(process.get("start_ticks"), "process.start_ticks")
        except ValueError as error:
            raise RingError(f"{self.path}: the header of this flight recorder cannot be read ({error})") from error
        size, end = os.fstat(self._handle).st_size, max(shape.end for shape in self._shapes)
        if end > size:
            raise RingError(f"{self.path}: truncated: {size} bytes, expected {end}")

    def is_alive(self) -> bool:
        """Whether the very process that wrote this (pid and start time) still runs."""
        return process_start_ticks(self.pid) == self.start_ticks and not self.closed

    @property
    def closed(self) -> bool:
        """Whether the writer ended in good order."""
        return bool(struct.unpack("<Q", self._bytes(CLOSED_OFFSET, 8))[0])

    @property
    def heartbeat_s(self) -> float:
        """Wall time of the last write, seconds since the epoch."""
        return self.wall(float(struct.unpack("<d", self._bytes(HEARTBEAT_OFFSET, 8))[0]))

    def halted(self) -> str:
        """Say why nothing is written although the process is there; empty while it shows life, or none can be told.

        Only a writer whose header says ``beats_s`` writes a sign of life where it has nothing to do.
        """
        if not self.is_alive():
            return ""
        if is_stopped(self.pid):
            return "its process is halted (SIGSTOP, a debugger)"
        beats = self.header.get("beats_s")
        if isinstance(beats, bool) or not isinstance(beats, int | float):
            return ""
        quiet = time.monotonic() - float(struct.unpack("<d", self._bytes(HEARTBEAT_OFFSET, 8))[0])
        return f"no sign of life for {quiet:.0f} s" if quiet > max(SILENT_S, 20 * beats) else ""

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
        return self._rows(2, since, lambda payload: border.mapping(border.document(payload, "event"), "event"))

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        # Who forgets to close holds a file open, not a page of memory: nothing is lost that a warning would mend.
        self.close()

    def _bytes(self, at: int, size: int) -> bytes:
        """Return bytes of the file; zeros where it has become shorter, which every check of a row then refuses."""
        # Read, not mapped: touching a mapping beyond a file that was cut meanwhile ends the process.
        return os.pread(self._handle, size, at).ljust(size, b"\0")

    def _rows(
        self, ring: int, since: int, decode: Callable[[bytes], _Row], most: int | None = None
    ) -> list[tuple[int, _Row]]:
        shape = self._shapes[ring]
        head = int(struct.unpack("<Q", self._bytes(HEADS_OFFSET + 8 * ring, 8))[0])
        rows = []
        for seq, row in self._raw(shape, max(since + 1, head - shape.capacity + 1), head):
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
        return rows

    def _raw(self, shape: RingShape, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield (seq, bytes) of rows, read a stretch at a time."""
        seq = first
        while seq <= last:
            at = shape.row_offset(seq)
            # A stretch ends where the ring begins anew.
            count = min(last - seq + 1, max(1, _STRETCH // shape.row_bytes), (shape.end - at) // shape.row_bytes)
            data = self._bytes(at, count * shape.row_bytes)
            for index in range(count):
                yield seq + index, data[index * shape.row_bytes : (index + 1) * shape.row_bytes]
            seq += count


def _shape(found: dict[str, Any], name: str) -> RingShape:
    """Refused when a header says what no writer writes: damage, or a file made to be read wrongly."""
    offset, row_bytes, capacity = (
        border.whole(found.get(key), f"{name}.{key}", least, _LARGEST_FILE)
        for key, least in (("offset", HEADER_OFFSET), ("row_bytes", ROW_HEAD.size), ("capacity", 1))
    )
    return RingShape(offset, row_bytes, capacity)


def _columns(found: object, where: str) -> list[str]:
    names = [border.text(name, where) for name in border.items(found, where, _MOST_COLUMNS)]
    if "t" not in names:
        raise border.Refused(f"{where} has no column t")
    return names


def _open(path: Path) -> int:
    try:
        with border.open_file(path) as file:
            magic, size = file.read(len(MAGIC)), os.fstat(file.fileno()).st_size
            if magic != MAGIC:
                raise RingError(f"{path}: not a flight recorder")
            if size < HEADER_OFFSET:
                raise RingError(f"{path}: truncated: {size} bytes, expected at least {HEADER_OFFSET}")
            return os.dup(file.fileno())
    except border.Refused as error:
        raise RingError(str(error)) from error
    except OSError as error:
        raise RingError(f"{path}: {error.strerror}") from error


def find_rings(directory: Path | None = None) -> list[Path]:
    """Return the recorder files in the runtime directory, newest first; one that vanishes meanwhile is none."""
    found: list[tuple[float, Path]] = []
    for path in (directory or runtime_dir()).glob("engine-*.ring"):
        with suppress(OSError):
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


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
            path.with_suffix(".token").unlink(missing_ok=True)
            removed.append(path)
    return removed
