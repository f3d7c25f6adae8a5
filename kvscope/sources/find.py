"""From what a user typed to the thing that is meant: a process's recorder, or what kind of file a path is."""

from __future__ import annotations

import contextlib
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psutil

from kvscope.errors import SourceError, nearest
from kvscope.recording.fixture import KEY
from kvscope.recording.schema import SQLITE_MAGIC
from probes.border import Refused, open_packed, printable
from probes.layout import MAGIC
from probes.ring_reader import RingError, RingReader, find_rings
from probes.runtime import RuntimeDirError, process_start_ticks, runtime_dir

FileKind = Literal[
    "ring",
    "recording",
    "series",
    "page",
    "trace",
    "log",
    "figures",
    "result",
    "ranges",
    "table",
    "printed",
    "answers",
    "iterations",
    "events",
    "requests",
]
_HEAD = 4096
_PASTED = 1 << 17
"""So much of a text is looked through for numbers with names: what people paste is short."""


def ring_of_pid(pid: int) -> Path:
    """Return the newest recorder of a process, or of one it launched or was launched by. SourceError when none."""
    try:
        rings = find_rings()
        where = runtime_dir()
    except RuntimeDirError as error:
        raise SourceError(str(error)) from error
    ticks = process_start_ticks(pid)
    family = _family(pid) if ticks is not None else {}
    reused = ""
    for path, header in _headers(rings):
        process, launcher = header["process"], header.get("launcher") or {}
        if process.get("pid") in family and family[process["pid"]] in (None, process.get("start_ticks")):
            return path
        for found in (process, launcher):
            if found.get("pid") == pid:
                if ticks is None or found.get("start_ticks") == ticks:
                    return path
                reused = f"; {path.name} was written by an earlier process with this pid"
    raise SourceError(_no_ring(pid, ticks is not None, where, len(rings)) + reused)


def kind_of_file(path: Path) -> FileKind:
    """Say what a file is, by its content. SourceError when it is missing or nothing kvscope reads."""
    try:
        head = _head(path)
    except Refused as error:
        raise SourceError(f"{error}: a recording, a series of scrapes or a flight recorder") from error
    except FileNotFoundError as error:
        raise SourceError(f"{path}: no such file, and no host:port and no process id{_nearest_file(path)}") from error
    except OSError as error:
        raise SourceError(f"{printable(path, 200)}: {error.strerror or error}") from error
    if head.startswith(MAGIC):
        return "ring"
    if head.startswith(SQLITE_MAGIC):
        from kvscope.sources.trace.nsys import is_nsys

        return "trace" if is_nsys(path) else "recording"
    if f'"{KEY}"'.encode() in head.split(b"\n", 1)[0]:
        return "recording"
    if _is_trace(head):
        return "trace"
    if not head.strip():
        raise SourceError(f"{path}: empty; expected {READ}")
    if path.suffix == ".msgpack":
        return "events"
    if b"\x00" in head or head.lstrip().startswith(b"<"):
        what = "a web page" if head.lstrip().startswith(b"<") else "binary data"
        raise SourceError(f"{path}: {what}; expected {READ}")
    return _kind_of_text(path, head)


READ = (
    "a metrics page or pages, a series {t, text}, a server log, a recording, a flight recorder, a profiler trace, "
    "a benchmark's result, figures (kvscope figures new), answers of an API, a Prometheus answer, spans or an export "
    "of single requests, a CSV, a table of nvidia-smi, rocm-smi, npu-smi or ollama ps"
)
"""What a file may be, for an error message."""


def _kind_of_text(path: Path, head: bytes) -> FileKind:
    """Tell what a text is by its own words, the surest first. SourceError says what it looked like."""
    from kvscope.sources.logs.source import is_log, start_of
    from kvscope.sources.printed import looks_printed
    from kvscope.sources.ranges import looks_ranges
    from kvscope.sources.stated.answers import looks_answers
    from kvscope.sources.stated.document import looks_stated
    from kvscope.sources.stated.result import looks_result
    from kvscope.sources.table import looks_table
    from kvscope.sources.trtllm_json import looks_iterations

    if head.lstrip().startswith(b"{") and re.match(rb'\{\s*"t"\s*:', head.lstrip()):
        return "series"
    if b"# TYPE" in head or b"# HELP" in head:
        return "page"
    start = start_of(path)
    from kvscope.sources.kv_events import looks_events
    from kvscope.sources.requests import looks_requests

    looks: tuple[tuple[FileKind, bool], ...] = (
        ("events", looks_events(head)),
        ("requests", looks_requests(start)),
        ("ranges", looks_ranges(head)),
        ("result", looks_result(start)),
        ("answers", looks_answers(start)),
        ("printed", looks_printed(start)),
        ("iterations", looks_iterations(start)),
        ("figures", looks_stated(start)),
        ("table", looks_table(head)),
    )
    for kind, so in looks:
        if so:
            return kind
    if is_log(start):
        return "log"
    from kvscope.sources.stated import pasted

    if pasted.looks(start[:_PASTED].decode("utf-8", errors="replace")):
        return "result"
    if head.lstrip().startswith(b"{"):
        return "series"
    if _LINE_OF_PAGE.search(head):
        return "page"
    shown = printable(head.lstrip()[:60].decode("utf-8", errors="replace").split("\n", 1)[0], 60)
    raise SourceError(f"{path}: text of no kind that is known ({shown!r}…); expected {READ}")


_LINE_OF_PAGE = re.compile(
    rb"^[A-Za-z_:][\w:]*\w(?:\{[^}\n]*\})?[ \t]+(?:[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|[-+]?Inf|NaN)(?:[ \t]+\d+)?\r?$",
    re.MULTILINE,
)
"""A series of a page that has no comments: a name, labels perhaps, a number, a time perhaps."""


def _is_trace(head: bytes) -> bool:
    """Whether a file starts as Chrome trace events do: by itself, as a list, or after the profiler's own header."""
    start = head.lstrip()
    if start.startswith(b"["):
        return b'"ph"' in head
    return start.startswith(b"{") and any(key in head for key in (b'"traceEvents"', b'"deviceProperties"'))


def listening_ports(pids: set[int] | None = None) -> dict[int, int]:
    """Return port → pid of what listens on this machine, of ``pids`` when given; pid 0 where it is not ours to see."""
    found: dict[int, int] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr:
                pid = connection.pid or 0
                if pids is None or pid in pids:
                    found[connection.laddr.port] = pid
    return found


def _no_ring(pid: int, alive: bool, where: Path, rings: int) -> str:
    looked = f"looked for a flight recorder of it, its parents and its children in {where} ({rings} there)"
    if not alive:
        return f"process {pid}: not running, and it left no flight recorder; {looked}"
    ports = sorted(listening_ports({pid, *_children(pid)}))
    hint = f"; it listens on port {ports[0]}: if that serves /metrics, give 127.0.0.1:{ports[0]}" if ports else ""
    return f"process {pid}: no flight recorder; {looked}{hint}"


def _family(pid: int) -> dict[int, int | None]:
    """Return pid → start time in ticks of a process, its descendants and its parent."""
    family = {pid: process_start_ticks(pid)}
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid).ppid()
        if parent > 1:
            family[parent] = process_start_ticks(parent)
    for child in _children(pid):
        family[child] = process_start_ticks(child)
    return family


def _children(pid: int) -> list[int]:
    """Descendants by parent pid alone: psutil leaves out a child whose start looks earlier than its parent's.

    Each process is looked at afresh: psutil.process_iter keeps what it saw, and skips a pid once after its reuse.
    """
    parents = {}
    for one in psutil.pids():
        with contextlib.suppress(psutil.Error):
            parents[one] = psutil.Process(one).ppid()
    found, generation = [], {pid}
    while generation := {child for child, parent in parents.items() if parent in generation}:
        found += sorted(generation)
    return found


def _headers(rings: list[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in rings:
        with contextlib.suppress(RingError):
            reader = RingReader(path)
            header = reader.header
            reader.close()
            yield path, header


def _head(path: Path) -> bytes:
    with open_packed(path) as file:
        try:
            return file.read1(_HEAD)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            # A series may be cut; its first bytes say what it is all the same.
            return b""


def _nearest_file(path: Path) -> str:
    with contextlib.suppress(OSError):
        return nearest(path.name, [found.name for found in path.parent.iterdir()])
    return f"; {path.parent} is no folder"
