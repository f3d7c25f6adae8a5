"""Every finished level in a file, so that an interrupted run goes on where it stopped. Times and lengths, no text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvscope.bench._load_plan import Level
from kvscope.bench._load_run import LevelRun
from kvscope.errors import UsageError

SCHEMA = 1


class LoadLog:
    """JSON lines: first who was asked and how, then one line a finished level. Without a path it forgets everything."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self._path = path
        self._found: dict[tuple[str, int], LevelRun] = {}
        if path is None:
            return
        if path.exists():
            self._read(path, about)
        else:
            self._append({"schema": SCHEMA, "about": about})

    def __len__(self) -> int:
        return len(self._found)

    def get(self, level: Level, repeat: int) -> LevelRun | None:
        """Return a level that is finished already."""
        return self._found.get((level.key, repeat))

    def add(self, run: LevelRun) -> None:
        """Keep a finished level."""
        self._found[run.level.key, run.repeat] = run
        if self._path is not None:
            self._append(run.as_json())

    def _read(self, path: Path, about: dict[str, Any]) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            head = json.loads(lines[0])["about"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UsageError(f"{path}: {error!r}; expected the log of a load run, or no file") from None
        if differing := sorted(key for key in {*about, *head} if about.get(key) != head.get(key)):
            key = differing[0]
            raise UsageError(
                f"{path}: was written with {key} {head.get(key)!r}, now it is {about.get(key)!r}; "
                "expected the same settings, or another --log"
            )
        for line in lines[1:]:
            # A line that a kill cut off is a level that is not finished.
            try:
                run = LevelRun.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            self._found[run.level.key, run.repeat] = run

    def _append(self, row: dict[str, Any]) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
        except OSError as error:
            raise UsageError(f"--log {self._path}: {error.strerror or error}") from error
