"""The tables of a recording, how one is told from any other file, what a series in it must be, and how its
times and values are packed into bytes and back, exactly.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, repeat
from operator import sub, truediv
from pathlib import Path

from kvscope.errors import SourceError
from probes import border
from probes.sample import Labels

_LEVEL = 1
_LARGEST = 64 << 20
"""Most bytes of a chunk: a series of five minutes is a thousandth of it."""

_EXACT_INTEGER = 2.0**53
_MICRO = 1e6
_RUN = struct.Struct("<dI")
"""One time of a tick and how many series have a value at it; series ids (u32) and values (f64) follow."""


def to_micros(t: float) -> float:
    """Round a time to the microsecond, the resolution of a recording; marks and samples alike, or they would part."""
    return round(t * _MICRO) / _MICRO


def pack_times(times: Sequence[float]) -> bytes:
    """Pack times (seconds, ascending) at microsecond resolution."""
    return _squeeze(_deltas([round(t * _MICRO) for t in times]))


def unpack_times(data: bytes) -> list[float]:
    """Undo ``pack_times``."""
    return [micros / _MICRO for micros in accumulate(_integers(data))]


def pack_values(values: Sequence[float]) -> bytes:
    """Pack finite values exactly: as integer steps where they are integers or thousandths, else as they stand."""
    for code, scale in ((b"i", 1), (b"m", 1000)):
        whole = _scaled(values, scale)
        if whole is not None:
            return code + _squeeze(_deltas(whole))
    return b"f" + _squeeze(array("d", values))


def unpack_values(data: bytes) -> list[float]:
    """Undo ``pack_values``."""
    code, body = data[:1], data[1:]
    if code == b"i":
        return [float(value) for value in accumulate(_integers(body))]
    if code == b"m":
        return [value / 1000 for value in accumulate(_integers(body))]
    floats = array("d")
    floats.frombytes(_unshuffle(_unsqueezed(body)))
    return floats.tolist()


def pack_tick(runs: Mapping[float, tuple[Sequence[int], Sequence[float]]]) -> bytes:
    """Pack one tick: time → (series ids, values)."""
    parts = []
    for t, (ids, values) in sorted(runs.items()):
        parts += [_RUN.pack(t, len(ids)), array("I", ids).tobytes(), array("d", values).tobytes()]
    return b"".join(parts)


def unpack_tick(data: bytes) -> Iterator[tuple[float, array[int], array[float]]]:
    """Undo ``pack_tick``: yield (time, series ids, values)."""
    at = 0
    while at < len(data):
        t, n = _RUN.unpack_from(data, at)
        at += _RUN.size
        ids, values = array("I"), array("d")
        ids.frombytes(data[at : at + 4 * n])
        values.frombytes(data[at + 4 * n : at + 12 * n])
        at += 12 * n
        yield t, ids, values


def _scaled(values: Sequence[float], scale: int) -> list[int] | None:
    """Return the values times ``scale`` as integers, or None when that would not give them back exactly."""
    limit = _EXACT_INTEGER / scale
    if not (-limit < min(values) and max(values) < limit):
        return None
    # A recorder folds hundreds of thousands of values at once: what runs for each of them is C.
    if scale == 1:
        whole = list(map(int, values))
        return whole if whole == list(values) else None
    if round(values[0] * scale) / scale != values[0]:
        return None
    whole = list(map(round, map(float(scale).__mul__, values)))
    return whole if list(map(truediv, whole, repeat(scale))) == list(values) else None


def _deltas(values: Sequence[int]) -> array[int]:
    return array("q", map(sub, values, chain((0,), values)))


def _integers(data: bytes) -> array[int]:
    whole = array("q")
    whole.frombytes(_unshuffle(_unsqueezed(data)))
    return whole


def _squeeze(values: array[int] | array[float]) -> bytes:
    raw = values.tobytes()
    # Bytes of equal weight together: the high ones hardly change from value to value, and compress to nothing.
    return zlib.compress(b"".join([raw[byte::8] for byte in range(8)]), _LEVEL)


def _unsqueezed(data: bytes) -> bytes:
    """Undo zlib; ValueError where a few bytes claim to be more than any chunk holds."""
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(data, _LARGEST)
    if not unpacker.eof:
        raise ValueError("a chunk is cut, or larger than any that is written")
    return raw


def _unshuffle(data: bytes) -> bytes:
    raw = bytearray(len(data))
    n = len(data) // 8
    for byte in range(8):
        raw[byte::8] = data[byte * n : (byte + 1) * n]
    return bytes(raw)


SCHEMA = 1
APPLICATION_ID = 0x6B767363
"""``kvsc``: tells a recording from any other SQLite file."""

SQLITE_MAGIC = b"SQLite format 3\x00"

HEADER_BYTES = 100
"""SQLite's file header: page size at byte 16 (1 stands for 65536), pages at byte 28, both big-endian."""

TABLES = """
CREATE TABLE header (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE series (id INTEGER PRIMARY KEY, metric TEXT NOT NULL, labels TEXT NOT NULL, UNIQUE (metric, labels));
CREATE TABLE ticks (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE times (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, series INTEGER NOT NULL, generation INTEGER NOT NULL,
    start_s REAL NOT NULL, end_s REAL NOT NULL, n INTEGER NOT NULL,
    first REAL NOT NULL, last REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL, total REAL NOT NULL,
    times INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX chunks_by_series ON chunks (series, generation);
CREATE INDEX chunks_by_generation ON chunks (generation);
CREATE TABLE marks (t REAL NOT NULL, name TEXT NOT NULL, tags TEXT NOT NULL);
"""
"""``ticks`` not yet folded into ``chunks``; a generation is one folding, and chunks of it share their ``times``."""


REAL_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
"""What somebody else's database really holds: a view or a module behind a name may compute rows without end."""
NAMED = frozenset(("header", "series", "ticks", "times", "chunks", "marks"))


def lay_out(db: sqlite3.Connection) -> None:
    """Create the tables in an empty file."""
    db.executescript(f"BEGIN; PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA}; {TABLES} COMMIT;")


def check(db: sqlite3.Connection, path: Path) -> None:
    """Raise SourceError when the file is no recording, or one of another schema."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise SourceError(f"{path}: an SQLite file, but not a kvscope recording")
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found != SCHEMA:
        raise SourceError(
            f"{path}: recording schema {found}, this kvscope reads schema {SCHEMA}; "
            "read it with the kvscope that wrote it"
        )


def stated_length(head: bytes) -> int:
    """Return the bytes an SQLite file has by its own header; 0 when that is no such header."""
    if len(head) < HEADER_BYTES or not head.startswith(SQLITE_MAGIC):
        return 0
    page = int.from_bytes(head[16:18], "big")
    return (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big")


def checked_series(metric: object, labels: Iterable[tuple[object, object]]) -> tuple[str, Labels]:
    """Return a series as it may enter a store. ValueError where a name is none, or a bucket has no bound."""
    name = border.text(metric, "metric")
    pairs = tuple(sorted((border.text(key, "label"), border.text(value, f"{name}: label")) for key, value in labels))
    if name.endswith(".bucket"):
        bound = dict(pairs).get("le")
        if bound is None:
            raise ValueError(f"{name}: a bucket without its bound, expected a label le")
        if bound != "+Inf":
            border.written(bound, f"{name}: le")
    return name, pairs
