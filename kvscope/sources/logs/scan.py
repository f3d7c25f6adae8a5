"""Finding the lines that mean something in files of any size: read in blocks, looked through for literal text.

Memory is bounded by a block; a stat line that comes more than a few hundred times in a block is thinned, and told.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kvscope.sources.logs.rule import Rule

BLOCK = 4 << 20
LARGE = 8 << 20
MOST_OF_A_KIND = 20_000
"""Lines of one kind read of a large log: twice what a store keeps of one series."""
_FEWEST = 32
_START_BLOCKS = 8
"""So many blocks hold an engine's start: half of the texts that are looked for stand nowhere else."""
_UNPACKED = 16
"""A gzipped log is taken to be this many times as large as its file."""
_GZIP = b"\x1f\x8b"
_LONGEST = 1 << 20
"""A line longer than this is cut: no engine writes one."""


class Hit(NamedTuple):
    """A line that holds a rule's text, and how many of its kind it stands for."""

    raw: str
    rules: Sequence[Rule]
    weight: float


def opened(path: Path) -> BinaryIO:
    """Open a log, plain or gzipped."""
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


def head(path: Path, size: int) -> bytes:
    """Return the first bytes of a log as text; of a damaged gzip what came out whole."""
    with opened(path) as file:
        try:
            return file.read(size)
        except (EOFError, OSError, zlib.error):
            return b""


def tail(path: Path, size: int) -> bytes:
    """Return the last bytes of a plain log; nothing of a gzipped one, whose end is far away."""
    with path.open("rb") as file:
        if file.read(2) == _GZIP:
            return b""
        file.seek(0, io.SEEK_END)
        file.seek(max(0, file.tell() - size))
        return file.read(size)


def budget(path: Path | None) -> int:
    """Return how many lines of one kind are read of a block, so that all blocks together stay bounded; 0: all."""
    if path is None:
        return MOST_OF_A_KIND // 10
    with path.open("rb") as file:
        size = path.stat().st_size * (_UNPACKED if file.read(2) == _GZIP else 1)
    return 0 if size <= LARGE else max(_FEWEST, MOST_OF_A_KIND * BLOCK // size)


class Scanner:
    """Takes bytes as they come and gives the lines that hold a needle, in their order.

    ``most``: lines of one repeated kind taken of a block, the others are stood for; 0: all are taken. ``starts``: text
    that an engine writes when it starts; in a large log, what is said only then is looked for in the blocks behind it.
    """

    def __init__(self, needles: Mapping[bytes, Sequence[Rule]], *, most: int = 0, starts: Sequence[bytes] = ()) -> None:
        self._needles = needles
        self._later = {
            text: rules for text, rules in needles.items() if any(rule.repeats or rule.says for rule in rules)
        }
        self._starts = starts if most else ()
        self._starting = _START_BLOCKS
        self._rest = b""
        self.thinned = False
        self._most = most

    def feed(self, block: bytes) -> Iterator[Hit]:
        """Yield the hits of the whole lines so far."""
        block = self._rest + block
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) > _LONGEST:
            cut = len(block)
        self._rest = block[cut:]
        yield from self._hits(block, cut)

    def end(self) -> Iterator[Hit]:
        """Yield the hits of a last line that no newline ends."""
        rest, self._rest = self._rest, b""
        yield from self._hits(rest, len(rest))

    def _hits(self, block: bytes, end: int) -> Iterator[Hit]:
        found: dict[int, tuple[list[Rule], float]] = {}
        if not self._starts or any(block.find(text, 0, end) >= 0 for text in self._starts):
            self._starting = _START_BLOCKS
        self._starting -= 1
        for needle, rules in (self._needles if self._starting >= 0 else self._later).items():
            self._find(block, end, needle, rules, found)
        for start in sorted(found):
            stop = block.find(b"\n", start, end)
            raw = block[start : stop if stop >= 0 else end][:_LONGEST]
            rules_here, weight = found[start]
            yield Hit(raw.decode("utf-8", errors="replace"), rules_here, weight)

    def _find(
        self, block: bytes, end: int, needle: bytes, rules: Sequence[Rule], found: dict[int, tuple[list[Rule], float]]
    ) -> None:
        at = block.find(needle, 0, end)
        if at < 0:
            return
        step, weight = 0, 1.0
        if self._most and all(rule.repeats for rule in rules):
            total = block.count(needle, 0, end)
            if total > self._most:
                step, weight = end // self._most, total / self._most
                self.thinned = True
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            known = found.setdefault(start, ([], weight))
            known[0].extend(rule for rule in rules if rule not in known[0])
            stop = block.find(b"\n", at, end)
            if stop < 0:
                return
            at = block.find(needle, max(stop, start + step), end)
