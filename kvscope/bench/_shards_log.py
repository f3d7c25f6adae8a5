"""Every finished cell in a file, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvscope.bench._shards_plan import Task
from kvscope.errors import UsageError


class ShardsLog:
    """JSON lines, one a finished cell. Without a path it forgets everything."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, task: Task) -> dict[str, Any] | None:
        """Return what was found for a cell that is finished already."""
        return self._found.get(task.key)

    def add(self, task: Task, found: Mapping[str, Any]) -> None:
        """Keep a finished cell."""
        self._found[task.key] = dict(found)
        if self._path is None:
            return
        row = {"ranks": task.ranks, "device": task.device, "cell": dict(task.cell), "found": dict(found)}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
        except OSError as error:
            raise UsageError(f"--log {self._path}: {error.strerror or error}") from error

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UsageError(f"--log {path}: {error}; expected the log of a shards run, or no file") from None
        for line in lines:
            # A line that a kill cut off is a cell that is not finished.
            try:
                row = json.loads(line)
                self._found[Task(int(row["ranks"]), row["device"], row["cell"]).key] = row["found"]
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
