"""Marks a person sets from another terminal: `kvscope mark NAME` appends one, whoever watches an engine reads it.

One JSON line a mark, in the user's runtime directory, mode 0600. A built-in engine keeps its marks in its own flight
recorder instead, where they outlive every watcher.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from kvscope.errors import UsageError
from kvscope.sources._base import Description, Mark, Poll
from probes.runtime import RuntimeDirError, runtime_dir

FILE = "marks.jsonl"


def append(name: str, t: float) -> Path:
    """Write a mark at ``t`` (seconds since the epoch) for everyone who watches; UsageError where that cannot be."""
    try:
        path = runtime_dir(create=True) / FILE
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
            file.write(json.dumps({"mark": name, "t": t}) + "\n")
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
        self._read = self._path.stat().st_size if self._path.is_file() else 0

    def describe(self) -> Description:
        return Description("marks", str(self._path))

    def poll(self) -> Poll:
        if not self._path.is_file():
            return Poll([])
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(end)
        return Poll([], tuple(mark for line in whole.splitlines() if (mark := self._mark(line)) is not None))

    def _mark(self, line: bytes) -> Mark | None:
        try:
            told = json.loads(line)
            return Mark(str(told["mark"]), float(told["t"]), self._tags)
        except (ValueError, KeyError, TypeError):
            return None

    def close(self) -> None:
        """Nothing is held open."""
