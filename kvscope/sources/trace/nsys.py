"""Reads an export of Nsight Systems (``nsys export --type sqlite``) as a trace: kernels, copies, calls, NVTX ranges.

Tables and columns as Nsight Systems 2024.1 to 2025.5 write them. Times are ns after the session's start. Numbers of
calls are of one process: a kernel belongs to the call of the same number in its own process. Ranges are an engine's
step annotations where it makes them (vLLM: VLLM_NVTX_SCOPES_FOR_PROFILING=1).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.recording.schema import REAL_TABLES
from kvscope.sources.trace.events import MOST_EVENTS, Trace
from probes import border

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GRAPH_NAME = "CUDA graph traced as one"
_PROCESS = 0xFFFFFFFFFF000000
"""A thread's global number without the thread: its process."""
_COPIES = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
_ROWS: tuple[tuple[str, str, dict[str, str]], ...] = (
    # What it becomes, its table, our key → its column.
    ("cuda_runtime", "CUPTI_ACTIVITY_KIND_RUNTIME", {"name": "nameId", "tid": "globalTid"}),
    ("kernel", _KERNEL, {"name": "demangledName", "pid": "globalPid", "device": "deviceId", "stream": "streamId"}),
    (
        "gpu_memcpy",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {"kind": "copyKind", "bytes": "bytes", "pid": "globalPid", "device": "deviceId", "stream": "streamId"},
    ),
    (
        "gpu_memset",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        {"bytes": "bytes", "pid": "globalPid", "device": "deviceId", "stream": "streamId"},
    ),
    ("kernel", _GRAPH, {"pid": "globalPid", "device": "deviceId", "stream": "streamId"}),
    ("user_annotation", "NVTX_EVENTS", {"text": "text", "name": "textId", "tid": "globalTid"}),
)


_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""SQLite quotes what is damaged in its errors, whatever bytes that is."""


def is_nsys(path: Path) -> bool:
    """Whether a SQLite file is such an export, and no recording of ours."""
    with contextlib.suppress(*_UNREADABLE, OSError), contextlib.closing(_open(path)) as database:
        return bool(_tables(database) & {_KERNEL, _GRAPH})
    return False


def read(path: Path) -> Trace:
    """Read the whole export. SourceError when it is damaged or holds no kernel."""
    trace = Trace()
    try:
        with contextlib.closing(_open(path)) as database:
            tables = _tables(database)
            trace.base_s = _start(database, tables)
            trace.device = _device(database, tables)
            strings: dict[object, object] = {}
            for key, value in _query(database, tables, "StringIds", ("id", "value")):
                strings[key] = value
            numbers: dict[tuple[int, int], int] = {}
            for kind, table, columns in _ROWS:
                for event in _events(database, tables, kind, table, columns, strings, numbers):
                    trace.add(event)
                    if len(trace) >= MOST_EVENTS:
                        trace.damage = f"{path}: more than {MOST_EVENTS} events; the rest was left out"
                        break
    except _UNREADABLE as error:
        raise SourceError(f"{path}: an export of Nsight Systems that cannot be read ({error})") from error
    if not len(trace):
        raise SourceError(f"{path}: an export of Nsight Systems without kernels; record with --trace cuda,nvtx")
    return trace


def _open(path: Path) -> sqlite3.Connection:
    # A query string in a file's name must not become options of the database.
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda text: text.decode("utf-8", errors="replace")
    return database


def _tables(database: sqlite3.Connection) -> set[str]:
    # No views: one may compute rows without end.
    return {str(name) for (name,) in database.execute(REAL_TABLES)}


def _query(
    database: sqlite3.Connection, tables: set[str], table: str, columns: tuple[str, ...]
) -> Iterator[tuple[object, ...]]:
    """Yield rows of the columns; None for a column that this release does not have."""
    if table not in tables:
        return
    have = {str(row[1]) for row in database.execute(f'PRAGMA table_info("{table}")')}
    picked = ", ".join(f'"{column}"' if column in have else "NULL" for column in columns)
    yield from database.execute(f'SELECT {picked} FROM "{table}"')


def _start(database: sqlite3.Connection, tables: set[str]) -> float:
    row = next(_query(database, tables, "TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)), (None,))
    return row[0] / 1e9 if isinstance(row[0], int) else 0.0


def _device(database: sqlite3.Connection, tables: set[str]) -> str:
    row = next(_query(database, tables, "TARGET_INFO_GPU", ("name",)), (None,))
    return border.printable(row[0], 100) if isinstance(row[0], str) else ""


def _events(
    database: sqlite3.Connection,
    tables: set[str],
    kind: str,
    table: str,
    columns: dict[str, str],
    strings: dict[object, object],
    numbers: dict[tuple[int, int], int],
) -> Iterator[dict[str, object]]:
    wanted = ("start", "end", "correlationId", *columns.values())
    for start, end, correlation, *rest in _query(database, tables, table, wanted):
        if not isinstance(start, int) or not isinstance(end, int) or end < start:
            continue
        found = dict(zip(columns, rest, strict=True))
        process = _number(found.get("pid")) or _number(found.get("tid")) & _PROCESS
        # Both sides of a call carry its number; which process they are of is told in two ways.
        link = numbers.setdefault((process, _number(correlation)), len(numbers)) if _number(correlation) else -1
        name = found.get("text") or strings.get(found.get("name")) or ""
        if "kind" in found:
            name = _COPIES.get(_number(found["kind"]), "Memcpy")
        elif kind == "gpu_memset":
            name = "Memset"
        elif table == _GRAPH:
            name = GRAPH_NAME
        yield {
            "ph": "X",
            "cat": kind,
            "name": name,
            "ts": start / 1e3,
            "dur": (end - start) / 1e3,
            "pid": process,
            "tid": _number(found.get("tid")),
            "args": {
                "correlation": link,
                "bytes": found.get("bytes"),
                "device": _number(found.get("device")),
                "stream": _number(found.get("stream")),
            },
        }


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
