"""Several files as one target: a folder, a pattern, a list with commas; pages in a row, a page and its log,
a fleet, the flight recorders of ranks.
"""

from __future__ import annotations

import glob
import heapq
import os
import re
from collections.abc import Sequence
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.sources import find
from kvscope.sources._replicas import Labeller, describe
from kvscope.sources.find import FileKind, kind_of_file
from kvscope.sources.ring import RingSource
from kvscope.sources.saved import PagesSource, one_engine, pages_of, read_text, times_of
from kvscope.sources.source import Description, Mark, Poll, Source
from probes.border import exists
from probes.sample import Sample


def is_list(text: str) -> bool:
    """Whether a target is a list, with commas, of process ids and files."""
    parts = _parts(text)
    return len(parts) > 1 and all(part.isdecimal() or _is_file(part) for part in parts)


class RanksSource:
    """Polls every recorder. It is alive while one of them is; segments are those of the first."""

    def __init__(self, paths: Sequence[Path], sliced: bool = False) -> None:
        sources = [RingSource(path, sliced) for path in paths]
        self._members = [(source, Labeller(name)) for name, source in _named(sources)]

    @classmethod
    def of(cls, text: str, sliced: bool = False) -> RanksSource:
        """Open a list. SourceError when one of it is no recorder."""
        paths = []
        for part in _parts(text):
            if part.isdecimal() and not exists(part):
                paths.append(find.ring_of_pid(int(part)))
                continue
            path = Path(os.path.expanduser(part))
            if (kind := find.kind_of_file(path)) != "ring":
                raise SourceError(f"{path}: a {kind}; expected flight recorders only where several are given")
            paths.append(path)
        return cls(list(dict.fromkeys(paths)), sliced)

    def describe(self) -> Description:
        seen = {label.replica: source.describe() for source, label in self._members}
        alive = sum(one.alive for one in seen.values())
        return describe("rings", ",".join(seen), {name: one.tags for name, one in seen.items()}, alive, len(seen))

    def poll(self) -> Poll:
        polls = [(label, source.poll()) for source, label in self._members]
        samples = [label(poll.samples) for label, poll in polls]
        return Poll(
            list(heapq.merge(*samples, key=lambda sample: sample.t)),
            polls[0][1].marks,
            tuple(f"{label.replica}: {line}" for label, poll in polls for line in poll.notices),
            all(poll.ended for _, poll in polls),
            any(poll.more for _, poll in polls),
        )

    def close(self) -> None:
        for source, _ in self._members:
            source.close()


def _is_file(part: str) -> bool:
    return exists(part) and Path(os.path.expanduser(part)).is_file()


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _named(sources: Sequence[RingSource]) -> list[tuple[str, RingSource]]:
    """By rank, in their order, where these are the ranks of one run; else by process id."""
    runs = {source.run for source in sources}
    if len(runs) == 1 and None not in runs:
        ordered = sorted(sources, key=lambda source: source.rank or 0)
        return [(f"rank {source.rank}", source) for source in ordered]
    return [(f"pid {source.writer}", source) for source in sources]


_MOST = 1000
_CACHES = ("lmcache", "lmcache-mp", "mooncake", "dcgm", "rocm", "npu", "")
"""What stands beside one engine and is no replica of it; a table of nvidia-smi names no engine."""
_SERIES: tuple[FileKind, ...] = ("recording", "series", "page", "iterations", "ranges", "table")
_SURER: tuple[FileKind, ...] = (*_SERIES, "ring", "log", "answers", "printed", "trace", "events", "result", "figures")
"""Kinds of files about one run, whose word counts before that of those behind it."""


def paths_of(text: str) -> list[Path] | None:
    """Return the files that a folder, a pattern or a list names; None when it names none of these."""
    if any(mark in text for mark in "*?[") and not Path(text).exists():
        found = [Path(one) for one in sorted(glob.glob(text, recursive=False))[: _MOST + 1]]
        if not found:
            raise SourceError(f"{text}: no file matches")
        return _files(text, found)
    if Path(text).is_dir():
        return _files(text, sorted(Path(text).iterdir()))
    parts = [Path(part.strip()) for part in text.split(",") if part.strip()]
    if len(parts) > 1 and all(part.is_file() for part in parts):
        return _files(text, parts)
    return None


def _files(text: str, found: Sequence[Path]) -> list[Path]:
    files = [one for one in found if one.is_file() and not one.name.startswith(".")]
    if not files:
        raise SourceError(f"{text}: a folder without files; expected pages, series, logs or recordings in it")
    if len(files) > _MOST:
        raise SourceError(f"{text}: {len(files)} files; at most {_MOST} are read as one")
    return sorted(files, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort ``metrics-9`` before ``metrics-10``."""
    return [(int(part) if part.isdecimal() and len(part) < 18 else -1, part) for part in re.split(r"(\d+)", path.name)]


def of_files(paths: Sequence[Path], text: str) -> Source:
    """Return several files as one source. SourceError when not one of them is anything that is read."""
    kinds, refused = _kinds(paths)
    pages = [path for path, kind in kinds.items() if kind == "page"]
    if len(pages) > 1 and len(pages) == len(kinds):
        texts = [read_text(path) for path in pages]
        if one_engine(texts, text):
            return PagesSource(texts, text, pages[-1].stat().st_mtime, times_of(pages))
    members: dict[Path, Source] = {}
    for path, kind in sorted(kinds.items(), key=lambda one: _SURER.index(one[1])):
        try:
            members[path] = _opened(path, kind)
        except SourceError as error:
            refused.append(str(error))
    if not members:
        raise SourceError(f"{text}: nothing in it is read; the first: {refused[0] if refused else 'no file'}")
    series = {path for path in members if kinds[path] in _SERIES}
    engines = [path for path in series if members[path].describe().engine not in _CACHES] or [
        path for path in members if kinds[path] == "log"
    ]
    if len(engines) > 1:
        fleet = [path for path in members if path in series or path in engines]
        return FilesSource({_name(path, fleet): members[path] for path in fleet}, text)
    main = engines[0] if engines else next(iter(members))
    events = [members.pop(path) for path in list(members) if kinds[path] == "events" and path != main]
    return _one_run([members.pop(main), *members.values()], events)


def _opened(path: Path, kind: FileKind) -> Source:
    from kvscope.sources import open_file_target
    from kvscope.sources.kv_events import EventsSource

    if kind == "page":
        return pages_of(path, alone=False)
    return EventsSource(path, alone=False) if kind == "events" else open_file_target(path)


def _one_run(parts: Sequence[Source], events: Sequence[Source]) -> Source:
    """Return what lies about one engine's run as one source, the surest first."""
    from kvscope.sources.beside import Joined, WithLog
    from kvscope.sources.kv_events import EventsSource, WithEvents

    if parts[0].describe().engine in (*_CACHES[3:], ""):
        raise SourceError(f"{parts[0].describe().target}: readings of a machine, and nothing of an engine beside them")
    first, *rest = parts
    # A log may be days older than the pages beside it: what it said long before is left. One without times is joined.
    logs = [one for one in rest if one.describe().kind == "log" and one.describe().dated]
    for log in logs if first.describe().dated else []:
        first = WithLog(first, log)
        rest.remove(log)
    source: Source = Joined([first, *rest]) if rest else first
    for one in events:
        assert isinstance(one, EventsSource)
        source = WithEvents(source, one)
    return source


def _kinds(paths: Sequence[Path]) -> tuple[dict[Path, FileKind], list[str]]:
    kinds: dict[Path, FileKind] = {}
    refused = []
    for path in paths:
        try:
            kinds[path] = kind_of_file(path)
        except SourceError as error:
            refused.append(str(error))
    return kinds, refused


def _name(path: Path, others: Sequence[Path]) -> str:
    """Return what a person calls a member: the file's name up to its kind, with the folder where that is not enough."""
    short = path.name.partition(".")[0]
    twins = [other for other in others if other.name.partition(".")[0] == short]
    return short if len(twins) == 1 else path.name


class FilesSource:
    """A fleet that was saved, one file a replica."""

    def __init__(self, members: dict[str, Source], target: str) -> None:
        self._members = {name: (source, Labeller(name)) for name, source in members.items()}
        self._target = target

    def describe(self) -> Description:
        tags = {name: source.describe().tags for name, (source, _) in self._members.items()}
        return describe("series", self._target, tags, len(tags), len(tags))

    def poll(self) -> Poll:
        samples: list[Sample] = []
        marks: list[Mark] = []
        notices: dict[str, None] = {}
        for name, (source, label) in self._members.items():
            poll = source.poll()
            samples += label(poll.samples)
            notices.update(dict.fromkeys(f"{name}: {line}" for line in poll.notices))
        samples.sort(key=lambda sample: sample.t)
        return Poll(samples, tuple(marks), tuple(notices), ended=True)

    def close(self) -> None:
        for source, _ in self._members.values():
            source.close()
