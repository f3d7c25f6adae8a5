"""Where samples come from; ``open_target`` turns what a user typed into a source."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.sources.source import Source
from probes.border import exists, open_file

_FIRST = 1 << 16
_MOST = 512 << 20


def open_piped() -> Source:
    """Open standard input. SourceError when nothing is piped in, or it is nothing that is read."""
    from kvscope.sources.logs.source import LogSource, detect

    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError) as error:
        raise SourceError("standard input: there is none; expected a log, a page or figures piped in") from error
    start = b""
    while len(start) < _FIRST:
        piece = os.read(descriptor, _FIRST)
        start += piece
        if not piece or (start.count(b"\n") and detect(start)):
            break
    if detect(start):
        return LogSource(None, start=start)
    return open_file_target(_kept(descriptor, start))


def _kept(descriptor: int, start: bytes) -> Path:
    """Write what comes into a file that goes with this process."""
    import atexit
    import tempfile

    if not start.strip():
        raise SourceError("standard input: empty; expected a log, a page or figures piped in")
    # Only its name outlives the block: the file is removed when the interpreter ends.
    file = tempfile.NamedTemporaryFile(prefix="kvscope-stdin-", delete=False)  # noqa: SIM115
    with file:
        size = file.write(start)
        while piece := os.read(descriptor, 1 << 20):
            size += file.write(piece)
            if size > _MOST:
                raise SourceError(f"standard input: more than {_MOST >> 20} MiB that are no log; expected less")
    path = Path(file.name)
    atexit.register(path.unlink, missing_ok=True)
    return path


def open_target(
    text: str,
    *,
    speed: float | None = None,
    timeout_s: float | None = None,
    machine: bool = False,
    sliced: bool = False,
    follow: bool = False,
) -> Source:
    """Open an address (``host:port``, ``http://…``), a process id, a file, or ``-`` for a log from standard input.

    Files are recorders, recordings, scrapes, logs and traces. ``speed`` plays them at that many times real time instead
    of all at once; ``follow`` stays at the end of a log that grows. ``machine`` adds, to a live engine, marks set from
    another terminal and, where it runs on this machine, processor and GPU readings. ``sliced``: a flight recorder gives
    what it holds already over several polls, for one who heeds ``Poll.more``. SourceError when there is nothing to read
    behind the target, UsageError when it is no target at all.
    """
    source = _open(text, speed, timeout_s, sliced, follow)
    if not machine or exists(text):
        return source
    from kvscope.sources.beside import MergedSource

    pid = getattr(source, "pid", None)
    beside = [*_marks(source), *(_machine(pid) if pid is not None else ())]
    return MergedSource(source, beside) if beside else source


def _machine(pid: int) -> list[Source]:
    """Readings of the processor and the accelerators this process runs on."""
    from kvscope.sources import amd, npu
    from kvscope.sources.host import HostSource
    from kvscope.sources.nvml import NvmlSource

    beside: list[Source] = [HostSource(pid), amd.AmdSource() if amd.available() else NvmlSource()]
    return [*beside, npu.NpuSource()] if npu.available() else beside


def _marks(source: Source) -> list[Source]:
    """Marks set from another terminal; a built-in engine that can be told of them keeps them in its own recorder."""
    from kvscope.sources.control import EngineControl
    from kvscope.sources.marks import MarksSource

    about = source.describe()
    if about.kind == "ring" and EngineControl(Path(about.target)).available:
        return []
    return [MarksSource(about.tags)]


def _open(text: str, speed: float | None, timeout_s: float | None, sliced: bool, follow: bool) -> Source:
    # Looked for first: what reads pages and asks a Prometheus is a tenth of a dashboard's start, and not needed here.
    if text == "-":
        return open_piped()
    if text.startswith("events+"):
        from kvscope.sources.kv_events import LiveEvents

        return LiveEvents(text)
    path = Path(os.path.expanduser(text))
    if _is_recorder(path):
        return _ring(path, sliced)
    if text.startswith(("file_sd:", "http_sd+", "dns:", "dns+srv:", "k8s:")) and not exists(text):
        from kvscope.sources.service_discovery import DiscoveredSource

        return DiscoveredSource(text)
    from kvscope.sources import find, scrape

    if text.isdecimal() and not exists(text):
        return _ring(find.ring_of_pid(int(text)), sliced)
    if several := _several(text):
        return several
    fleet = _fleet(text, timeout_s, sliced)
    if fleet is not None:
        return fleet
    if scrape.is_url(text) and not exists(text):
        first = timeout_s or scrape.FIRST_TIMEOUT_S
        return scrape.ScrapeSource(text, timeout_s=timeout_s or scrape.TIMEOUT_S, first_timeout_s=first)
    return open_file_target(path, speed=speed, follow=follow)


def open_file_target(path: Path, *, speed: float | None = None, follow: bool = False) -> Source:
    """Open one file by what it holds. SourceError says what it looked like and what would be read."""
    from kvscope.sources import find

    kind = find.kind_of_file(path)
    if kind == "ring":
        return _ring(path)
    if kind == "recording":
        from kvscope.sources.recording import RecordingSource

        return RecordingSource(path, speed=speed)
    if kind == "log":
        from kvscope.sources.logs.source import LogSource

        return LogSource(path, follow=follow, speed=speed)
    if kind == "trace":
        from kvscope.sources.trace import TraceSource

        return TraceSource(path)
    if kind == "page":
        from kvscope.sources.saved import pages_of

        return pages_of(path)
    if kind in ("figures", "result", "answers"):
        from kvscope.sources import stated

        found = stated.open_stated(path, kind)
        return _with_its_log(path, found, follow) if kind == "result" else found
    if kind == "events":
        from kvscope.sources.kv_events import EventsSource

        return EventsSource(path)
    if kind == "requests":
        from kvscope.sources.requests import RequestsSource

        return RequestsSource(path)
    if kind == "ranges":
        from kvscope.sources.ranges import RangesSource

        return RangesSource(path)
    if kind == "printed":
        from kvscope.sources.printed import PrintedSource

        return PrintedSource(path)
    if kind == "iterations":
        from kvscope.sources.saved import SavedIterations

        return SavedIterations(path)
    if kind == "table":
        from kvscope.sources.table import TableSource

        return TableSource(path)
    from kvscope.sources.series import SeriesSource

    return SeriesSource(path, speed=speed)


def _with_its_log(path: Path, result: Source, follow: bool) -> Source:
    """Return a result with the server's lines that were pasted into the same text; of several runs none is that of the
    log."""
    from kvscope.sources.logs.source import LogSource, is_log, start_of
    from kvscope.sources.stated.source import StatedSource

    if not isinstance(result, StatedSource) or result.arms > 1 or not is_log(start_of(path)):
        return result
    from kvscope.sources.beside import Joined

    return Joined([LogSource(path, follow=follow), result])


def _several(text: str) -> Source | None:
    """Return the source of a folder, a pattern or a list of files; None where the target is one thing."""
    address = "://" in text and not exists(text)
    if address or not (any(mark in text for mark in "*?[,") or os.path.isdir(os.path.expanduser(text))):
        return None
    from kvscope.sources import several

    paths = several.paths_of(os.path.expanduser(text))
    return None if paths is None or any(_is_recorder(path) for path in paths) else several.of_files(paths, text)


def _is_recorder(path: Path) -> bool:
    from probes.layout import MAGIC

    with contextlib.suppress(OSError, ValueError), open_file(path) as file:
        return file.read(len(MAGIC)) == MAGIC
    return False


def _fleet(text: str, timeout_s: float | None, sliced: bool) -> Source | None:
    """Return a source of several engines when the target names them: a Prometheus, or a list with commas."""
    from kvscope.sources import _promapi, fleet, scrape, several

    if several.is_list(text) and not exists(text):
        return several.RanksSource.of(text, sliced)
    if _promapi.is_prometheus(text):
        from kvscope.sources import prometheus

        return prometheus.PrometheusSource(text, timeout_s=timeout_s or prometheus.TIMEOUT_S)
    if fleet.is_fleet(text) and not exists(text):
        return fleet.FleetSource(fleet.addresses(text), timeout_s=timeout_s or scrape.TIMEOUT_S)
    return None


def _ring(path: Path, sliced: bool = False) -> Source:
    from kvscope.sources.ring import RingSource

    return RingSource(path, sliced)
