"""The bytes of a flight recorder file: one superblock, a JSON header, three rings of fixed-width rows.

A row is ``seq u64 · crc32 u32 · length u32 · payload``. ``seq`` starts at 1 and names the row's slot; the crc covers
the payload. A reader that meets a row being written, or one half-written when the process died, sees a wrong seq or
crc and skips it: readers never block the writer and the writer never waits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"KVSCOPE\x01"
SUPERBLOCK = struct.Struct("<8sIIQQQdQ")
"""magic, layout version, header bytes, rows ever written to each ring, heartbeat (monotonic s), closed."""
HEADS_OFFSET = 16
HEADS = struct.Struct("<QQQd")
"""Rows ever written to each ring and the heartbeat, as they follow each other in the superblock."""
HEARTBEAT_OFFSET = 40
HEARTBEAT = struct.Struct("<d")
CLOSED_OFFSET = 48
HEADER_OFFSET = 64
LAYOUT_VERSION = 1
PAGE = 4096

ROW_HEAD = struct.Struct("<QII")
RING_NAMES = ("steps", "requests", "events")
EVENT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class RingShape:
    """Where one ring lies in the file: byte offset, bytes per row (head included), rows it holds."""

    offset: int
    row_bytes: int
    capacity: int

    @property
    def end(self) -> int:
        return self.offset + self.row_bytes * self.capacity

    def row_offset(self, seq: int) -> int:
        """Return the byte offset of row ``seq`` (1-based)."""
        return self.offset + ((seq - 1) % self.capacity) * self.row_bytes


def align(size: int) -> int:
    """Round up to a whole page."""
    return -(-size // PAGE) * PAGE
