"""Finished parts of a measurement in a file, so that an interrupted one goes on where it stopped. No prompt text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from kvscope.errors import UsageError

SCHEMA = 2
_Part = TypeVar("_Part")


class Log(Generic[_Part]):
    """What is finished, by key; ``write`` and ``read`` turn a part to JSON and back. Without a path nothing is kept.

    On disk JSON lines: first what is measured and how (``about``), then key and part of each. UsageError when the file
    holds a measurement of something else, or is no such file.
    """

    def __init__(
        self,
        path: str | Path | None,
        about: Mapping[str, Any],
        write: Callable[[_Part], Any] = lambda part: part,
        read: Callable[[Any], _Part] = lambda found: found,
    ) -> None:
        self._path, self._write = Path(path) if path else None, write
        self._parts: dict[str, _Part] = {}
        if self._path is None:
            return
        if not self._path.exists():
            self._append({"schema": SCHEMA, "about": about})
            return
        head, *lines = _lines(self._path)
        _check_same(self._path, head, json.loads(json.dumps(about)))
        for line in lines:
            # A line that a kill cut off is a part that is not finished.
            try:
                found = json.loads(line)
                self._parts[found["key"]] = read(found["part"])
            except (ValueError, KeyError, TypeError, IndexError):
                continue

    def __len__(self) -> int:
        return len(self._parts)

    def get(self, *key: object) -> _Part | None:
        """Return a part that is finished already."""
        return self._parts.get(_text(key))

    def parts(self) -> list[_Part]:
        """Every part that is finished, in the order in which they were."""
        return list(self._parts.values())

    def add(self, part: _Part, *key: object) -> None:
        """Keep a finished part."""
        self._parts[_text(key)] = part
        if self._path is not None:
            self._append({"key": _text(key), "part": self._write(part)})

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
        except OSError as error:
            raise UsageError(f"--log {self._path}: {error.strerror or error}") from error


def _text(key: tuple[object, ...]) -> str:
    return json.dumps(key, sort_keys=True)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}; expected the log of a measurement, or no file") from None


def _check_same(path: Path, line: str, about: Mapping[str, Any]) -> None:
    try:
        head = dict(json.loads(line)["about"])
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{path}: {error!r}; expected the log of a measurement, or no file") from None
    if differing := sorted(key for key in {*about, *head} if about.get(key) != head.get(key)):
        key = differing[0]
        raise UsageError(
            f"{path}: was written with {key} {head.get(key)!r}, now it is {about.get(key)!r}; "
            "expected the same settings, or another --log"
        )
