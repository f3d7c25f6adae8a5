"""Every finished cell in a file, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvscope.bench._row_log import RowLog
from kvscope.bench._shards_plan import Task


class ShardsLog:
    """What was found, by cell: cells of other settings may share a file. Without a path it forgets everything."""

    def __init__(self, path: Path | None) -> None:
        self._log = RowLog(path, {"bench": "shards"})
        self._found: dict[str, dict[str, Any]] = {}
        for row in self._log.rows:
            try:
                self._found[Task(int(row["ranks"]), row["device"], row["cell"]).key] = row["found"]
            except (ValueError, KeyError, TypeError):
                continue

    def __len__(self) -> int:
        return len(self._found)

    def get(self, task: Task) -> dict[str, Any] | None:
        """Return what was found for a cell that is finished already."""
        return self._found.get(task.key)

    def add(self, task: Task, found: Mapping[str, Any]) -> None:
        """Keep a finished cell."""
        self._found[task.key] = dict(found)
        self._log.add({"ranks": task.ranks, "device": task.device, "cell": dict(task.cell), "found": dict(found)})
