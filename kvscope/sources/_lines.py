"""JSON lines of a file, plain or gzipped, up to where the file is whole."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError

_GZIP_MAGIC = b"\x1f\x8b"
_LINE_LIMIT = 64 << 20
"""Longest line read: as long as the largest page a scrape takes."""


class JsonLines:
    """Iterates over (line number, object). ``damage`` says afterwards what could not be read, or is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self._skipped = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        try:
            with _open(self.path) as file:
                while line := file.readline(_LINE_LIMIT):
                    number += 1
                    found = self._parse(number, line)
                    if found is not None:
                        yield number, found
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._note(number + 1, f"the gzip stream is cut or damaged ({error})")
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from error

    def _parse(self, number: int, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            found = json.loads(line)
        except ValueError:
            self._note(number, "not whole JSON" if line.endswith(b"\n") else "cut in the middle of the line")
            return None
        if not isinstance(found, dict):
            self._note(number, "not a JSON object")
            return None
        return found

    def _note(self, number: int, why: str) -> None:
        self._skipped += 1
        if self._skipped == 1:
            self.damage = f"{self.path}, line {number}: {why}; what is whole was read"


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return gzip.open(path, "rb") if zipped else path.open("rb")
