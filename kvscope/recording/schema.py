"""The tables of a recording, how one is told from any other file, and what a series in it must be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from kvscope.errors import SourceError
from probes import border
from probes.sample import Labels

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
