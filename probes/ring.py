"""The flight recorder: the last minutes of an engine in one memory-mapped file that outlives it.

Mode 0600, single writer, any number of readers, standard library only. Times in rows are monotonic seconds; the header
carries the anchor that turns them into wall time.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import sys
import time
import zlib
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probes import border
from probes.layout import (
    CLOSED_OFFSET,
    EVENT_BYTES,
    HEADER_OFFSET,
    HEADS,
    HEADS_OFFSET,
    HEARTBEAT,
    HEARTBEAT_OFFSET,
    LAYOUT_VERSION,
    MAGIC,
    PAGE,
    RING_NAMES,
    ROW_HEAD,
    SUPERBLOCK,
    RingShape,
    align,
)
from probes.runtime import RuntimeDirError, process_start_ticks, runtime_dir

_DEFAULT_STEP_BYTES = 24 << 20
_MAX_STEP_ROWS = 65_536
_REQUEST_ROWS = 4096
_EVENT_ROWS = 512
_REACH = 64 * PAGE
_AS_STORED = sys.byteorder == "little"
_POPULATE_WRITE = 23
"""Linux' MADV_POPULATE_WRITE, which the module mmap does not name."""


def ring_path(pid: int, start_ticks: int, directory: Path) -> Path:
    """Return the file name of a process's recorder; pid and start time together are never reused."""
    return directory / f"engine-{pid}-{start_ticks}.ring"


class RingWriter:
    """Writes step rows, finished-request rows and events of this process.

    ``step_columns`` and ``request_columns`` name the values of a row in order (canonical metric names, ``name[layer]``
    for per-layer columns). ``header`` is kept as given and read back by every reader.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        step_columns: Sequence[str],
        request_columns: Sequence[str],
        *,
        directory: Path | None = None,
        step_bytes: int = _DEFAULT_STEP_BYTES,
    ) -> None:
        directory = directory or runtime_dir(create=True)
        pid = os.getpid()
        ticks = process_start_ticks(pid) or 0
        self.path = ring_path(pid, ticks, directory)
        self._packers = (struct.Struct(f"<{len(step_columns)}d"), struct.Struct(f"<{len(request_columns)}d"))
        full = {
            **header,
            "schema": 1,
            "process": {"pid": pid, "start_ticks": ticks},
            "anchor": {"wall": time.time(), "monotonic": time.monotonic()},
            "columns": list(step_columns),
            "request_columns": list(request_columns),
        }
        shapes = _shapes([packer.size for packer in self._packers], full, step_bytes)
        self._places = [(shape.offset, shape.row_bytes, shape.capacity) for shape in shapes]
        self._map = _create(self.path, full, shapes)
        self._heads = [0, 0, 0]
        self._ready = (0, 0)

    def write_step(self, values: Sequence[float]) -> None:
        """Append one step row (one value per step column); an array, which is of doubles, is copied as it stands."""
        packer = self._packers[0]
        payload = values if type(values) is array and _AS_STORED else packer.pack(*values)
        assert 8 * len(values) == packer.size, f"a row of {len(values)} values, expected {packer.size // 8}"
        self._append(0, payload, packer.size)

    def write_request(self, values: Sequence[float]) -> None:
        """Append one finished-request row."""
        self._append(1, self._packers[1].pack(*values), self._packers[1].size)

    def write_event(self, event: Mapping[str, Any]) -> None:
        """Append one event; ``t`` (monotonic s) is added. Of one longer than a row the texts are cut, then left out."""
        whole = {"t": time.monotonic(), **event}
        for most in (border.TEXT_CHARS, 64, 16, 0):
            payload = json.dumps(_cut(whole, most), separators=(",", ":"), ensure_ascii=False).encode(
                "utf-8", "replace"
            )
            if len(payload) <= EVENT_BYTES - ROW_HEAD.size:
                self._append(2, payload, len(payload))
                return

    def beat(self) -> None:
        """Show a sign of life where there is nothing to write."""
        HEARTBEAT.pack_into(self._map, HEARTBEAT_OFFSET, time.monotonic())

    def close(self) -> None:
        """Mark the recorder as ended in good order and let go of the file, which stays."""
        if not self._map.closed:
            struct.pack_into("<Q", self._map, CLOSED_OFFSET, 1)
            self._map.close()

    def _append(self, ring: int, payload: Any, size: int) -> None:
        """``payload`` is anything that lends its memory: ``size`` bytes."""
        mapped, heads, (offset, row_bytes, capacity) = self._map, self._heads, self._places[ring]
        at = offset + heads[ring] % capacity * row_bytes
        if ring == 0 and not self._ready[0] <= at < self._ready[1]:
            self._reach(at)
        head = heads[ring] + 1
        ROW_HEAD.pack_into(mapped, at, head, zlib.crc32(payload), size)
        mapped[at + ROW_HEAD.size : at + ROW_HEAD.size + size] = payload
        heads[ring] = head
        HEADS.pack_into(mapped, HEADS_OFFSET, *heads, time.monotonic())

    def _reach(self, at: int) -> None:
        """Have the next pages of step rows at hand; met one by one, between two steps, each costs ten times as much."""
        (offset, row_bytes, capacity), start = self._places[0], at // PAGE * PAGE
        length = min(_REACH, align(offset + row_bytes * capacity) - start)
        # The last row that begins there may end beyond, on a page that is then met alone.
        self._ready = (start, start + length)
        with contextlib.suppress(OSError):  # A kernel before 5.14 has no such advice.
            self._map.madvise(_POPULATE_WRITE, start, length)


def _cut(event: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return an event whose texts have ``most`` characters; at 0 only what numbers it and its name stay."""
    if most == 0:
        return {key: _short(value, 16) for key, value in event.items() if not isinstance(value, Mapping)}
    return {
        key: {name: _short(one, most) for name, one in value.items()}
        if isinstance(value, Mapping)
        else _short(value, most)
        for key, value in event.items()
    }


def _short(value: object, most: int) -> object:
    return border.printable(value, most) if isinstance(value, str) else value


def _shapes(payloads: list[int], header: Mapping[str, Any], step_bytes: int) -> list[RingShape]:
    # The header's own length depends on the shapes it names: 1 KiB is left for them.
    offset = align(HEADER_OFFSET + len(json.dumps(header)) + 1024)
    rows = (ROW_HEAD.size + payloads[0], ROW_HEAD.size + payloads[1], EVENT_BYTES)
    capacities = (max(1024, min(_MAX_STEP_ROWS, step_bytes // rows[0])), _REQUEST_ROWS, _EVENT_ROWS)
    shapes = []
    for row_bytes, capacity in zip(rows, capacities, strict=True):
        shapes.append(RingShape(offset, row_bytes, capacity))
        offset = align(shapes[-1].end)
    return shapes


def _create(path: Path, header: Mapping[str, Any], shapes: list[RingShape]) -> mmap.mmap:
    rings = {
        name: {"offset": s.offset, "row_bytes": s.row_bytes, "capacity": s.capacity}
        for name, s in zip(RING_NAMES, shapes, strict=True)
    }
    text = json.dumps({**header, "rings": rings}).encode()
    size = align(shapes[-1].end)
    try:
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Reserved now: a full disk is an error here, not a SIGBUS in the middle of a step.
            os.posix_fallocate(handle, 0, size)
            mapped = mmap.mmap(handle, size)
        finally:
            os.close(handle)
    except OSError as error:
        raise RuntimeDirError(f"flight recorder {path}: {error.strerror}; {size >> 20} MiB are needed there") from error
    mapped[HEADER_OFFSET : HEADER_OFFSET + len(text)] = text
    SUPERBLOCK.pack_into(mapped, 0, MAGIC, LAYOUT_VERSION, len(text), 0, 0, 0, time.monotonic(), 0)
    return mapped
