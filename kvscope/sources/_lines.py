"""JSON lines of a file, plain or gzipped, up to where the file is whole."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError
from probes import border


class JsonLines:
    """Iterates over (line number, object). ``damage`` says afterwards what could not be read, or is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self._skipped = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        try:
            with border.open_packed(self.path) as file:
                while line := file.readline(border.PAGE_BYTES):
                    number += 1
                    found = self._parse(number, line)
                    if found is not None:
                        yield number, found
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._note(number + 1, f"the gzip stream is cut or damaged ({error})")
        except border.Refused as error:
            raise SourceError(str(error)) from error
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from error

    def _parse(self, number: int, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        try:
            found = border.document(line, "the line")
        except border.Refused as error:
            whole = line.endswith(b"\n")
            deep = "nested" in str(error)
            self._note(
                number, "nested too deeply" if deep else "not whole JSON" if whole else "cut in the middle of the line"
            )
            return None
        if not isinstance(found, dict):
            self._note(number, "not a JSON object")
            return None
        return found

    def _note(self, number: int, why: str) -> None:
        self._skipped += 1
        if self._skipped == 1:
            self.damage = f"{self.path}, line {number}: {why}; what is whole was read"
