"""Marks a person sets from another terminal: `kvscope mark NAME` appends one, whoever watches an engine reads it.

One JSON line a mark, in the user's runtime directory, mode 0600. A built-in engine keeps its marks in its own flight
recorder instead, where they outlive every watcher.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from kvscope.errors import UsageError
from kvscope.sources.source import Description, Mark, Poll
from probes import border
from probes.runtime import RuntimeDirError, runtime_dir

FILE = "marks.jsonl"
MOST_BYTES = 8 << 20
_MOST_READ = 1 << 20


def append(name: str, t: float, tags: Mapping[str, str] | None = None) -> Path:
    """Write a mark at ``t`` (seconds since the epoch) for everyone who watches; UsageError where that cannot be.

    ``tags`` are what a person knows of the segment that starts; a source's own tags stay beside them.
    """
    try:
        path = runtime_dir(create=True) / FILE
        # Not through a link: whoever put it there would have this user write where the link leads.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(path, flags, 0o600), "w") as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                raise UsageError(f"{path}: more than {MOST_BYTES >> 20} MiB of marks; expected one you may delete")
            file.write(json.dumps({"mark": name, "t": t, **({"tags": dict(tags)} if tags else {})}) + "\n")
    except (RuntimeDirError, OSError) as error:
        raise UsageError(f"no mark: {error}") from error
    return path


class MarksSource:
    """Gives the marks appended since it was made; tags stay those of the source it stands beside."""

    def __init__(self, tags: dict[str, str], path: Path | None = None) -> None:
        try:
            self._path = path or runtime_dir() / FILE
        except RuntimeDirError:
            self._path = Path(os.devnull)
        self._tags = tags
        self._read = self._path.stat().st_size if self._is_there() else 0

    def describe(self) -> Description:
        return Description("marks", str(self._path))

    def poll(self) -> Poll:
        if not self._is_there():
            return Poll([])
        with border.open_file(self._path) as file:
            file.seek(self._read)
            whole, end, _ = file.read(_MOST_READ).rpartition(b"\n")
        self._read += len(whole) + len(end)
        return Poll([], tuple(mark for line in whole.splitlines() if (mark := self._mark(line)) is not None))

    def _is_there(self) -> bool:
        return self._path.is_file() and not self._path.is_symlink()

    def _mark(self, line: bytes) -> Mark | None:
        try:
            told = border.mapping(border.document(line, "mark"), "mark")
            tags = {**self._tags, **border.tags(told.get("tags"), "tags")}
            return Mark(border.text(told.get("mark"), "mark"), border.time_s(told.get("t"), "t"), tags)
        except border.Refused:
            return None

    def close(self) -> None:
        """Nothing is held open."""
