"""The flight recorder: the last minutes of an engine in one memory-mapped file that outlives it.

Mode 0600, single writer, any number of readers, standard library only. Times in rows are monotonic seconds; the header
carries the anchor that turns them into wall time.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probes.layout import (
    CLOSED_OFFSET,
    EVENT_BYTES,
    HEADER_OFFSET,
    HEADS_OFFSET,
    HEARTBEAT_OFFSET,
    LAYOUT_VERSION,
    MAGIC,
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
        self._shapes = _shapes([packer.size for packer in self._packers], full, step_bytes)
        self._map = _create(self.path, full, self._shapes)
        self._heads = [0, 0, 0]
        self._head_packer = struct.Struct("<Q")
        self._beat_packer = struct.Struct("<d")

    def write_step(self, values: Sequence[float]) -> None:
        """Append one step row (one value per step column)."""
        self._append(0, self._packers[0].pack(*values))

    def write_request(self, values: Sequence[float]) -> None:
        """Append one finished-request row."""
        self._append(1, self._packers[1].pack(*values))

    def write_event(self, event: Mapping[str, Any]) -> None:
        """Append one event; ``t`` (monotonic s) is added. An event longer than a row is refused (our own invariant)."""
        payload = json.dumps({"t": time.monotonic(), **event}, separators=(",", ":")).encode()
        assert len(payload) <= EVENT_BYTES - ROW_HEAD.size, f"event of {len(payload)} bytes does not fit a row"
        self._append(2, payload)

    def close(self) -> None:
        """Mark the recorder as ended in good order and let go of the file, which stays."""
        if not self._map.closed:
            struct.pack_into("<Q", self._map, CLOSED_OFFSET, 1)
            self._map.close()

    def _append(self, ring: int, payload: bytes) -> None:
        head = self._heads[ring] + 1
        at = self._shapes[ring].row_offset(head)
        row = ROW_HEAD.pack(head, zlib.crc32(payload), len(payload)) + payload
        self._map[at : at + len(row)] = row
        self._heads[ring] = head
        self._head_packer.pack_into(self._map, HEADS_OFFSET + 8 * ring, head)
        self._beat_packer.pack_into(self._map, HEARTBEAT_OFFSET, time.monotonic())


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
