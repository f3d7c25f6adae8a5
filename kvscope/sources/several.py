"""Several files as one target: a folder, a pattern, a list with commas; pages in a row, a page and its log, a fleet."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.sources._merged import MergedSource
from kvscope.sources._replicas import Labeller, describe
from kvscope.sources.find import FileKind, kind_of_file
from kvscope.sources.saved import PagesSource, one_engine, read_text, times_of
from kvscope.sources.source import Description, Mark, Poll, Source
from probes.sample import Sample

_MOST = 1000
_CACHES = ("lmcache", "lmcache-mp", "mooncake", "dcgm")
"""What stands beside one engine and is no replica of it."""
_SERIES: tuple[FileKind, ...] = ("series", "page", "recording", "ranges", "table")


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
    return [(int(part) if part.isdigit() and len(part) < 18 else -1, part) for part in re.split(r"(\d+)", path.name)]


def of_files(paths: Sequence[Path], text: str) -> Source:
    """Return several files as one source. SourceError when not one of them is anything that is read."""
    from kvscope.sources import open_file_target
    from kvscope.sources.beside import WithLog

    kinds, refused = _kinds(paths)
    series = [path for path, kind in kinds.items() if kind in _SERIES]
    logs = [path for path, kind in kinds.items() if kind == "log"]
    pages = [path for path, kind in kinds.items() if kind == "page"]
    if len(pages) > 1 and len(pages) == len(series):
        texts = [read_text(path) for path in pages]
        if one_engine(texts, text):
            return PagesSource(texts, text, pages[-1].stat().st_mtime, times_of(pages))
    if not series and not logs:
        other = next(iter(kinds), None)
        if other is not None:
            return open_file_target(other)
        raise SourceError(f"{text}: nothing in it is read; the first: {refused[0] if refused else 'no file'}")
    main = series or logs
    if len(main) == 1:
        source = open_file_target(main[0])
        beside = logs if series else []
        return WithLog(source, open_file_target(beside[0])) if len(beside) == 1 else source
    members: dict[str, Source] = {}
    for path in main:
        try:
            members[_name(path, main)] = open_file_target(path)
        except SourceError as error:
            refused.append(str(error))
    if not members:
        raise SourceError(f"{text}: nothing in it is read; the first: {refused[0]}")
    engines = [one for one in members.values() if one.describe().engine not in _CACHES]
    if len(engines) == 1 and len(members) > 1:
        return MergedSource(engines[0], [one for one in members.values() if one is not engines[0]])
    return FilesSource(members, text)


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
