"""Measured cells, a JSON line each: an interrupted table goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvscope.errors import UsageError


class RowLog:
    """Rows by model and cell. Without a path it forgets them at the end."""

    def __init__(self, path: Path | None, model: str) -> None:
        self._path, self._model = path, model
        self._found: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._found.get(self._key(cell))

    def add(self, row: dict[str, Any]) -> None:
        self._found[self._key(row["cell"])] = row
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"asked": self._model, **row}, separators=(",", ":")) + "\n")
        except OSError as error:
            raise UsageError(f"--log {self._path}: {error.strerror or error}") from error

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise UsageError(f"--log {path}: {error}; expected the log of an accuracy table, or no file") from None
        for line in lines:
            # A line that a kill cut off is a cell that is not measured.
            try:
                row = json.loads(line)
                if row.pop("asked") == self._model:
                    self._found[self._key(row["cell"])] = row
            except (ValueError, KeyError, TypeError, AttributeError):
                continue

    def _key(self, cell: Mapping[str, Any]) -> str:
        return json.dumps(cell, sort_keys=True)
