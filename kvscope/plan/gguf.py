"""The header of a GGUF file: its keys, and its tensors' names and bytes. Tensor data is never read.

Every length in the file is checked before it is believed: a header may be cut, damaged or hostile. Layout: version 2
and 3 of the format (``docs/gguf.md`` of ggml); block sizes of tensor types: ``ggml-common.h``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kvscope.errors import UsageError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS, MOST_TENSORS, MOST_DIMENSIONS = 1 << 16, 1 << 17, 8
MOST_HEADER = 256 << 20
"""No header is longer; tokenizers of a million words take some ten million bytes."""
KEPT_ITEMS = 4096
"""Longer arrays are tokenizers: walked over, not kept."""
LONGEST_KEY, LONGEST_TEXT = 1 << 10, 1 << 24
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36),
}  # fmt: skip
"""Numbers a block and bytes a block of each tensor type."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Name, shape and bytes of one tensor."""

    name: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """Keys of a file (long arrays left out) and its tensors; ``where`` names the file in errors."""

    values: dict[str, Any]
    tensors: tuple[Tensor, ...]
    where: str

    @property
    def total_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> Header:
    """Read the header; UsageError says at which byte it stopped making sense."""
    try:
        with path.open("rb") as file:
            return _Reader(file, str(path), path.stat().st_size).header()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; expected a GGUF file") from None


class _Reader:
    def __init__(self, file: IO[bytes], where: str, size: int) -> None:
        self._file, self._where, self._size, self._at = file, where, min(size, MOST_HEADER), 0

    def header(self) -> Header:
        """Magic, version, counts, keys, tensors."""
        if self._take(len(MAGIC)) != MAGIC:
            raise self._wrong("no GGUF magic")
        version = self._number("I")
        if version not in VERSIONS:
            raise self._wrong(f"version {version}, expected 2 or 3 (little-endian)")
        tensors, keys = self._number("Q"), self._number("Q")
        if tensors > MOST_TENSORS or keys > MOST_KEYS:
            raise self._wrong(f"{tensors} tensors and {keys} keys, more than any model has")
        values: dict[str, Any] = {}
        for _ in range(keys):
            name = self._text(LONGEST_KEY)
            if name in values:
                raise self._wrong(f"key {name!r:.80} twice")
            values[name] = self._value(self._number("I"))
        return Header(values, tuple(self._tensor() for _ in range(tensors)), self._where)

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind in SCALARS:
            return self._number(SCALARS[kind])
        if kind == TEXT:
            return self._text(LONGEST_TEXT)
        if kind != ARRAY or depth > 2:
            raise self._wrong(f"value of unknown type {kind}")
        inner, count = self._number("I"), self._number("Q")
        if inner in SCALARS:
            width = struct.calcsize("<" + SCALARS[inner])
            raw = self._take(count * width)
            return list(struct.unpack(f"<{count}{SCALARS[inner]}", raw)) if count <= KEPT_ITEMS else None
        if count > self._size:
            raise self._wrong(f"an array of {count} entries, longer than the file")
        found = []
        for at in range(count):
            value = self._value(inner, depth + 1)
            if at < KEPT_ITEMS:
                found.append(value)
        return found if count <= KEPT_ITEMS else None

    def _tensor(self) -> Tensor:
        name, dimensions = self._text(LONGEST_KEY), self._number("I")
        if dimensions > MOST_DIMENSIONS:
            raise self._wrong(f"tensor {name!r:.80} of {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))
        kind, _offset = self._number("I"), self._number("Q")
        if kind not in BLOCKS:
            raise self._wrong(f"tensor {name!r:.80} of unknown type {kind}")
        numbers = 1
        for one in shape:
            numbers *= one
        block, size = BLOCKS[kind]
        if numbers > 1 << 50:
            raise self._wrong(f"tensor {name!r:.80} of {numbers} numbers")
        return Tensor(name, shape, -(-numbers // block) * size)

    def _text(self, most: int) -> str:
        length = self._number("Q")
        if length > most:
            raise self._wrong(f"a text of {length} bytes")
        return self._take(length).decode("utf-8", "replace")

    def _number(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self._take(struct.calcsize("<" + kind)))[0]

    def _take(self, length: int) -> bytes:
        if length > self._size - self._at:
            raise self._wrong(f"needs {length} bytes more, the header ends")
        found = self._file.read(length)
        if len(found) != length:
            raise self._wrong("the file ends within the header")
        self._at += length
        return found

    def _wrong(self, what: str) -> UsageError:
        return UsageError(f"{self._where}: not a GGUF header that can be read: {what} (byte {self._at})")
