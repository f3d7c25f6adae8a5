"""Finished parts of a measurement in a file, so that an interrupted one goes on where it stopped. No prompt text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvscope.errors import UsageError

SCHEMA = 1


class RowLog:
    """JSON lines: first what is measured and how, then one a finished part. Without a path nothing is kept.

    UsageError when the file holds a measurement with other settings, or is no such file.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        if path is None:
            return
        if path.exists():
            self._read(path, json.loads(json.dumps(about)))
        else:
            self._append({"schema": SCHEMA, "about": about})

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep a finished part."""
        if self._path is not None:
            self._append(row)

    def _read(self, path: Path, about: dict[str, Any]) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            head = dict(json.loads(lines[0])["about"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UsageError(f"{path}: {error!r}; expected the log of a measurement, or no file") from None
        if differing := sorted(key for key in {*about, *head} if about.get(key) != head.get(key)):
            key = differing[0]
            raise UsageError(
                f"{path}: was written with {key} {head.get(key)!r}, now it is {about.get(key)!r}; "
                "expected the same settings, or another --log"
            )
        for line in lines[1:]:
            # A line that a kill cut off is a part that is not finished.
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                self.rows.append(row)

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
        except OSError as error:
            raise UsageError(f"--log {self._path}: {error.strerror or error}") from error
