"""Reads GGUF files: metadata as Python values, tensors as views of the mapped file, dequantised on request.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.quants import BY_CODE, CODE_NAMES
from probes import border

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES, MOST_DIMENSIONS, MOST_NESTED = 1 << 20, 8, 2
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class TensorInfo:
    """`shape` with the longest-stride dimension first (the reverse of the file's order); `offset` in bytes."""

    shape: tuple[int, ...]
    code: int
    offset: int


class GGUFFile:
    """`metadata` by key and `tensors` by name of one file; ValueError says what of it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with border.open_file(path) as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise ValueError(f"{path}: the file is empty; expected GGUF") from None
        cursor = _Cursor(self._data)
        if self._data[:4] != MAGIC:
            raise ValueError(f"{path}: not a GGUF file (it starts with {self._data[:4]!r})")
        try:
            cursor.at = 4
            version, tensors, keys = cursor.scalar(4), cursor.scalar(10), cursor.scalar(10)
            if version not in VERSIONS:
                raise ValueError(f"{path}: GGUF version {version}; expected 2 or 3, little-endian")
            if max(tensors, keys) > MOST_ENTRIES:
                raise ValueError(f"{path}: {max(tensors, keys)} entries; expected at most {MOST_ENTRIES}")
            self.metadata: dict[str, Any] = {cursor.string(): cursor.value(cursor.scalar(4)) for _ in range(keys)}
            found = [(cursor.string(), cursor.tensor()) for _ in range(tensors)]
        except (struct.error, IndexError, UnicodeDecodeError, KeyError) as error:
            raise ValueError(f"{path}: the header is damaged or cut short ({error})") from None
        align = border.whole(self.metadata.get("general.alignment", 32), f"{path}: general.alignment", 1, 1 << 20)
        start = -(-cursor.at // align) * align
        self.tensors = {name: TensorInfo(info.shape, info.code, start + info.offset) for name, info in found}

    def raw(self, name: str) -> tuple[npt.NDArray[np.uint8], int, tuple[int, ...]]:
        """Stored bytes, type code and shape of a tensor; ValueError when it is missing, cut or of no known type."""
        if name not in self.tensors:
            near = get_close_matches(name, self.tensors, n=1)
            raise ValueError(f"{self.path}: no tensor {name!r}" + (f"; nearest is {near[0]!r}" if near else ""))
        info = self.tensors[name]
        if info.code not in BY_CODE:
            kind = CODE_NAMES.get(info.code, f"code {info.code}")
            known = ", ".join(sorted(quant.name for quant in BY_CODE.values()))
            raise ValueError(f"{self.path}: tensor {name} is {kind}; types that can be read: {known}")
        quant = BY_CODE[info.code]
        size = prod(info.shape) // quant.block * quant.bytes
        if info.offset + size > len(self._data):
            raise ValueError(f"{self.path}: tensor {name} ends after the file does; it was cut short")
        return np.frombuffer(self._data, np.uint8, size, info.offset), info.code, info.shape

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """The values of a tensor, in its shape; raises as `raw` does."""
        data, code, shape = self.raw(name)
        return BY_CODE[code].decode(data).reshape(shape)


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def scalar(self, kind: int) -> Any:
        layout = _SCALARS[kind]
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return value

    def string(self) -> str:
        (size,) = struct.unpack_from("<Q", self.data, self.at)
        start, self.at = self.at + 8, self.at + 8 + size
        if self.at > len(self.data):
            raise IndexError("a string ends after the file does")
        return self.data[start : self.at].decode()

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(kind)
        inner, count = self.scalar(4), self.scalar(10)
        if depth >= MOST_NESTED:
            raise IndexError("lists in lists")
        if count > len(self.data) - self.at:
            raise IndexError("a list ends after the file does")
        if inner in (_STRING, _ARRAY):
            return [self.value(inner, depth + 1) for _ in range(count)]
        layout = _SCALARS[inner]
        values = struct.unpack_from(f"<{count}{layout[1]}", self.data, self.at)
        self.at += count * struct.calcsize(layout)
        return list(values)

    def tensor(self) -> TensorInfo:
        count = self.scalar(4)
        if count > MOST_DIMENSIONS:
            raise IndexError(f"a tensor of {count} dimensions")
        dimensions = [self.scalar(10) for _ in range(count)]
        return TensorInfo(tuple(reversed(dimensions)), self.scalar(4), self.scalar(10))
