"""A server's log as a target: read to its end, followed while it grows, or taken from standard input."""

from __future__ import annotations

import datetime
import importlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from kvscope.amounts import amount
from kvscope.discovery import module_names
from kvscope.errors import SourceError
from kvscope.sources._pacer import Pacer
from kvscope.sources.logs import engines as engine_folder
from kvscope.sources.logs.prefix import Line, Peeler, lines_of, plain
from kvscope.sources.logs.reader import EngineLog, LogReader, needles
from kvscope.sources.logs.scan import BLOCK, Hit, Scanner, budget, head, opened, tail
from kvscope.sources.source import Description, Poll
from probes.catalog import CATALOG
from probes.sample import Sample

_LOOK = 1 << 20
"""So much of a log's start says which engine wrote it and how."""
_FEW = 64 << 10
_ENOUGH = 50
_QUARTER_S = 900.0
_TELLING = (
    "kv.capacity_tokens",
    "kv.capacity_blocks",
    "config.kv_memory_bytes",
    "kv.reserved_bytes",
    "config.kv_bits",
    "config.max_context",
    "sched.max_running",
    "config.layers_on_device",
)
LACKING = "'s log does not tell "
_NO_TIMES = "no line carries a time: states, shares, durations and printed rates are read, what was counted is no rate"
_FROM_START = "times count from the engine's start: the last line is taken as written when the file was last changed"


@cache
def load(name: str) -> EngineLog:
    """Return what is known of one engine's log."""
    return cast(EngineLog, importlib.import_module(f"{engine_folder.__name__}.{name}"))


def every() -> tuple[EngineLog, ...]:
    """Return what is known of each engine's log."""
    return tuple(load(name) for name in module_names(engine_folder.__path__))


def detect(start: bytes) -> tuple[EngineLog, ...]:
    """Return whose lines these are, the surest first; empty when not one line is an engine's."""
    counted = []
    for engine in every():
        scanner = Scanner(needles(engine.RULES), most=_ENOUGH)
        hits = [*scanner.feed(start), *scanner.end()]
        # A line counts when its pattern matches, not when it merely holds a word of it.
        own = [(rule, plain(hit.raw)) for hit in hits for rule in hit.rules if not rule.common]
        kinds = {rule.needle for rule, words in own if rule.regex.search(words)}
        kinds |= {mark.decode() for mark in getattr(engine, "MARKS", ()) if mark in start}
        if kinds:
            counted.append((len(kinds), engine))
    counted.sort(key=lambda one: -one[0])
    first = counted[0][1].ENGINE if counted else ""
    # What is written beside an engine stands behind it, however much it says.
    for _, engine in counted:
        if any(other.ENGINE in engine.BESIDE for _, other in counted):
            continue
        first = engine.ENGINE
        break
    together = [engine for _, engine in counted if first == engine.ENGINE or first in engine.BESIDE]
    return tuple(sorted(together, key=lambda engine: first != engine.ENGINE))


def is_log(start: bytes) -> bool:
    """Whether text is a log of an engine that is known."""
    return bool(detect(start))


def start_of(path: Path) -> bytes:
    """Return the part of a file that says whether it is a log; of a damaged gzip what came out whole."""
    return head(path, _LOOK)


class LogSource:
    """Reads one log. ``follow``: stays at its end and reads what is added; else it ends there. Without a path it is
    standard input, of which ``start`` was read already.

    SourceError when not one line of its start is an engine's.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        follow: bool = False,
        speed: float | None = None,
        start: bytes = b"",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._name = str(path) if path is not None else "standard input"
        self._follow = follow
        self._wall = wall
        self._file: BinaryIO = cast(BinaryIO, sys.stdin.buffer) if path is None else opened(path)
        start = start or self._start()
        known = detect(start)
        if not known:
            self.close()
            raise SourceError(
                f"{self._name}: a text file, but no line of a known engine's log in its first {len(start)} bytes"
            )
        rules = [rule for engine in known for rule in engine.RULES]
        self._changed_s = wall() if path is None else path.stat().st_mtime
        self._peeler = Peeler(datetime.datetime.fromtimestamp(self._changed_s, datetime.UTC))
        starts = [getattr(engine, "STARTS", ()) for engine in known]
        told = [text for texts in starts for text in texts] if all(starts) else []
        self._scanner = Scanner(needles(rules), most=budget(path), starts=told)
        self._clock = self._timing(start)
        self.reader = LogReader(known, self._several(start), self._clock != "order")
        self._waiting = start
        self._last_s = 0.0
        self._line = 0
        self._ended = self._told = False
        self._damage = ""
        self._notices = [_NO_TIMES] if self._clock == "order" else [_FROM_START] if self._clock == "run" else []
        self._pacer = Pacer(((t, samples) for t, samples in self._all()), speed, clock) if speed is not None else None
        if known[0].LACKS:
            self._notices.append(f"{known[0].ENGINE}{LACKING}{known[0].LACKS}")

    def describe(self) -> Description:
        tags = dict(self.reader.tags) | self.reader.settings.tags()
        engine = self.reader.engine.ENGINE
        note = "server log: rates are averages that the engine printed"
        count = len(self.reader.replicas)
        if count > 1:
            note, tags["replicas"] = f"{note}; {count} replicas", str(count)
        dated = self._clock != "order"
        return Description("log", self._name, engine, tags.get("version", ""), tags, note=note, dated=dated)

    def poll(self) -> Poll:
        samples: list[Sample] = []
        if self._pacer is not None:
            for found in self._pacer.due():
                samples += found
            ended = self._pacer.ended
        else:
            for _, found in self._all():
                samples += found
            ended = self._ended
        self._told = self._told or bool(samples)
        if ended and not self._told:
            who = self.reader.engine.ENGINE
            raise SourceError(
                f"{self._name}: {who} wrote it, but no line tells a state, a count or a setting that is read"
            )
        samples.sort(key=lambda sample: sample.t)
        notices = (*self._notices, *self.reader.notices)
        self._notices, self.reader.notices = [], []
        if ended and self._scanner.thinned:
            notices = (*notices, "a large log: of lines that repeat, some stand for the others around them")
        if ended and not self.reader.ticked and (told := self.reader.settings.values()):
            notices = (*notices, f"no line tells of work, only of the start: {len(told)} settings, {_shown(told)}")
        if ended and self._damage:
            notices = (*notices, self._damage)
        return Poll(samples, notices=notices, ended=ended)

    def close(self) -> None:
        if self._path is not None:
            self._file.close()

    def _start(self) -> bytes:
        return self._block(_LOOK)

    def _block(self, size: int) -> bytes:
        if self._path is None:
            return os.read(self._file.fileno(), size)
        try:
            return self._file.read(size)
        except (EOFError, OSError, zlib.error) as error:
            self._damage = f"{self._name}: cut or damaged ({error}); what is whole was read"
            return b""

    def _all(self) -> Iterator[tuple[float, list[Sample]]]:
        """Yield the samples of every line from here to the present end."""
        while not self._ended:
            block, self._waiting = (self._waiting or self._block(BLOCK)), b""
            if not block:
                if self._follow and self._grows_on():
                    return
                self._ended = True
                self.close()
                for hit in self._scanner.end():
                    yield from self._read(hit)
                return
            for hit in self._scanner.feed(block):
                yield from self._read(hit)

    def _grows_on(self) -> bool:
        """Whether the file is still there to be followed; one that was rotated away is opened anew."""
        if self._path is None:
            return False
        try:
            now = self._path.stat()
        except OSError:
            return True
        here = os.fstat(self._file.fileno())
        if now.st_ino != here.st_ino or now.st_size < self._file.tell():
            self._file.close()
            self._file = opened(self._path)
            self._notices.append("the log was rotated: read on from the new file")
        return True

    def _read(self, hit: Hit) -> Iterator[tuple[float, list[Sample]]]:
        for raw in lines_of(hit.raw):
            line = self._peeler.peel(raw)
            self._last_s = max(self._last_s, self._when(line))
            for rule in hit.rules:
                samples = self.reader.take(line, self._last_s, rule, hit.weight)
                if samples:
                    yield self._last_s, samples

    def _when(self, line: Line) -> float:
        if self._clock == "order":
            self._line += 1
            return self._base_s + self._line
        if self._clock == "run":
            return self._base_s + line.run if line.run is not None else self._last_s or self._base_s
        if line.t is None:
            return self._last_s or self._changed_s
        return line.t if line.zoned else line.t + self._shift_s

    def _timing(self, start: bytes) -> str:
        """Say how lines tell their time (``wall``, ``run`` since the engine's start, ``order`` only), and set it."""
        self._base_s, self._shift_s = self._changed_s, 0.0
        end = tail(self._path, _FEW) if self._path is not None else b""
        lines = [self._peeler.peel(raw) for raw in _lines(start[:_FEW])]
        late = [self._peeler.peel(raw) for raw in _lines(end)] or lines
        if any(line.t is not None for line in lines):
            last = next((line for line in reversed(late) if line.t is not None), None)
            grows = end and self._wall() - self._changed_s < _QUARTER_S
            if grows and last is not None and last.t is not None and not last.zoned:
                self._shift_s = _zone(self._changed_s - last.t)
            return "wall"
        runs = [line.run for line in late if line.run is not None]
        if runs:
            self._base_s = self._changed_s - runs[-1]
            return "run"
        return "order"

    def _several(self, start: bytes) -> bool:
        """Whether several engines write this log: by what collected it, or by the engine's own numbers."""
        speakers = set()
        for raw in _lines(start):
            line = self._peeler.peel(raw)
            for engine in every():
                for rule in engine.RULES:
                    if rule.stat and rule.needle in line.message:
                        gives = rule.of(line.message, {}) or []
                        named = next((give.text for give in gives if give.kind == "who"), "")
                        if gives:
                            speakers.add((line.who, named))
            if len(speakers) > 1:
                return True
        return False


def _shown(settings: Mapping[str, float]) -> str:
    """Return the settings that tell most of a pool, with their units."""
    chosen = [name for name in _TELLING if name in settings] or list(settings)[:4]
    return ", ".join(f"{name} {amount(settings[name], CATALOG[name].unit)}" for name in chosen[:5])


def _lines(block: bytes) -> list[str]:
    return [raw.decode("utf-8", errors="replace") for raw in block.split(b"\n") if raw.strip()]


def _zone(off_s: float) -> float:
    """Return the offset of a clock without a zone from when the file was last written: whole quarters of an hour.

    Asked only of a log that is being written: of one copied later, when it was changed says nothing.
    """
    quarters = round(off_s / _QUARTER_S)
    if quarters and abs(off_s - quarters * _QUARTER_S) < 90.0 and abs(quarters) <= 56:
        return quarters * _QUARTER_S
    return 0.0
