"""Measured cells in a file, by cell: an interrupted table goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvscope.bench._row_log import RowLog


class AccuracyLog:
    """Rows of one model by cell. Without a path it forgets them at the end."""

    def __init__(self, path: Path | None, model: str) -> None:
        self._log = RowLog(path, {"bench": "accuracy", "model": model})
        self._found = {_key(row["cell"]): row for row in self._log.rows if "cell" in row}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, cell: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the row of a cell that is measured already."""
        return self._found.get(_key(cell))

    def add(self, row: dict[str, Any]) -> None:
        """Keep a measured row; its `cell` says what it is of."""
        self._found[_key(row["cell"])] = row
        self._log.add(row)


def _key(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)
