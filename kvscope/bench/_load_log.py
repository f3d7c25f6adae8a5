"""Every finished level in a file, so that an interrupted run goes on where it stopped. Times and lengths, no text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvscope.bench._load_plan import Level
from kvscope.bench._load_run import LevelRun
from kvscope.bench._row_log import RowLog


class LoadLog:
    """The finished levels of one load run, by level and repeat."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self._log = RowLog(path, about)
        self._found: dict[tuple[str, int], LevelRun] = {}
        for row in self._log.rows:
            try:
                run = LevelRun.from_json(row)
            except (ValueError, KeyError, TypeError):
                continue
            self._found[run.level.key, run.repeat] = run

    def __len__(self) -> int:
        return len(self._found)

    def get(self, level: Level, repeat: int) -> LevelRun | None:
        """Return a level that is finished already."""
        return self._found.get((level.key, repeat))

    def add(self, run: LevelRun) -> None:
        """Keep a finished level."""
        self._found[run.level.key, run.repeat] = run
        self._log.add(run.as_json())
