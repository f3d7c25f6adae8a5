"""Finished runs of a matrix, a JSON line each: an interrupted or split matrix goes on, and parts are read together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from kvscope.bench._matrix_run import Outcome
from kvscope.errors import UsageError

_LISTS = ("expected", "named", "folded", "unknown", "untrue")


def read(paths: Iterable[Path]) -> dict[tuple[str, int], Outcome]:
    """Return every finished run by case and seed; a line that a kill cut off is a run that is not finished."""
    found: dict[tuple[str, int], Outcome] = {}
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; expected the log of a matrix") from None
        for line in lines:
            try:
                row = json.loads(line)
                one = Outcome(**{**row, **{key: tuple(row[key]) for key in _LISTS}})
            except (ValueError, KeyError, TypeError):
                continue
            found[one.label, one.seed] = one
    return found


def add(path: Path, outcome: Outcome) -> None:
    """Keep a finished run; UsageError when it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome), separators=(",", ":")) + "\n")
    except OSError as error:
        raise UsageError(f"--log {path}: {error.strerror or error}") from error
