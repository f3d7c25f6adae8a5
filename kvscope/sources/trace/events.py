"""Reads a profiler trace (Kineto, Chrome trace events) piece by piece: numbers of the events are kept, not their text.

A trace of 500 MB is read through a window of a few MiB; what stays is some 50 bytes an event and each name once.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import math
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from kvscope.errors import SourceError
from probes import border

OP, NOTE, LAUNCH, KERNEL, MODULE = range(5)
"""Kinds of events kept: CPU operator, annotation, call that starts device work, device work, module of the model."""

MOST_EVENTS = 20_000_000
_CHUNK = 1 << 20
_LONGEST_EVENT = 4 << 20
_LONGEST_HEAD = 16 << 20
_LONGEST_NAME = 400
_LATEST_US = 1e17
"""Some three thousand years: a time beyond it is no time."""

_KINDS = {
    "cpu_op": OP,
    "operator": OP,
    "user_annotation": NOTE,
    "cuda_runtime": LAUNCH,
    "cuda_driver": LAUNCH,
    "runtime": LAUNCH,
    "privateuse1_runtime": LAUNCH,
    "kernel": KERNEL,
    "gpu_memcpy": KERNEL,
    "gpu_memset": KERNEL,
    "python_function": MODULE,
}
_EVENTS_KEY = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")


class Trait(NamedTuple):
    """What the shapes of an operator's inputs say: rank of the first, axis of a ``cat``, token ids [rows, B, Q]."""

    rank: int = -1
    axis: int | None = None
    sizes: tuple[int, ...] = ()


_NO_TRAIT = Trait()


class Trace:
    """The events of one trace, column by column; times in µs after ``base_s`` (seconds since the epoch)."""

    def __init__(self) -> None:
        self.base_s = 0.0
        self.device = ""
        self.names: list[str] = []
        self.traits: list[Trait] = [_NO_TRAIT]
        self.lanes: list[tuple[str, ...]] = []
        self.kind = array("b")
        self.name = array("l")
        self.lane = array("l")
        self.trait = array("l")
        self.start, self.duration = array("d"), array("d")
        self.link = array("q")
        """Correlation of a launch with the device work it started; -1 where the trace gives none."""
        self.size = array("q")
        """Bytes of a copy, else -1."""
        self.damage = ""
        self._name_ids: dict[str, int] = {}
        self._lane_ids: dict[tuple[str, ...], int] = {}
        self._trait_ids: dict[Trait, int] = {_NO_TRAIT: 0}

    def __len__(self) -> int:
        return len(self.start)

    def add(self, event: Mapping[str, Any]) -> None:
        """Keep an event if it is of a kind that matters; anything malformed is passed over."""
        kind = _KINDS.get(str(event.get("cat", "")).lower())
        name, start, duration = event.get("name"), _number(event.get("ts")), _number(event.get("dur"))
        if kind is None or event.get("ph") != "X" or not isinstance(name, str) or start is None:
            return
        if duration is None or not 0 <= duration < _LATEST_US or abs(start) > _LATEST_US:
            return
        if kind == MODULE and not name.startswith("nn.Module: "):
            return
        found = event.get("args")
        args: Mapping[str, Any] = found if isinstance(found, dict) else {}
        process = border.shown(event.get("pid"))
        lane = ("", process, border.shown(event.get("tid")))
        if kind == KERNEL:
            lane = (border.shown(args.get("device", event.get("pid"))), process, border.shown(args.get("stream", "")))
        self.kind.append(kind)
        self.name.append(_interned(border.printable(name, _LONGEST_NAME), self._name_ids, self.names))
        self.lane.append(_interned(lane, self._lane_ids, self.lanes))
        trait = trait_of(name, args) if kind == OP else _NO_TRAIT
        self.trait.append(_interned(trait, self._trait_ids, self.traits))
        self.start.append(start)
        self.duration.append(duration)
        self.link.append(_whole(args.get("correlation")))
        self.size.append(_whole(args.get("bytes")))


def read(path: Path) -> Trace:
    """Read the whole trace; ``damage`` says where it is cut or broken. SourceError when nothing whole is in it."""
    trace = Trace()
    pieces = _pieces(path, trace)
    head, text = "", ""
    for text in pieces:
        head += text
        found = _EVENTS_KEY.search(head)
        if found is not None or head.lstrip().startswith("["):
            break
        if len(head) > _LONGEST_HEAD:
            raise SourceError(
                f"{path}: no traceEvents in the first {_LONGEST_HEAD >> 20} MiB; expected a profiler trace"
            )
    else:
        raise SourceError(f"{path}: {trace.damage or 'no traceEvents in it; expected a profiler trace'}")
    _read_head(head[: found.start()] if found else "", trace)
    _read_events(path, trace, head[found.end() if found else head.index("[") + 1 :], pieces)
    if not len(trace):
        raise SourceError(
            f"{path}: {trace.damage or 'a profiler trace without operators or kernels'}; expected events of "
            "torch.profiler's export_chrome_trace"
        )
    return trace


def _read_events(path: Path, trace: Trace, text: str, pieces: Iterator[str]) -> None:
    decoder, at, count = border.DECODER, 0, 0
    while True:
        at = _end_of(_BETWEEN, text, at)
        if at < len(text) and text[at] == "]":
            return
        try:
            event, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            more = next(pieces, "") if len(text) - at < _LONGEST_EVENT else ""
            if not more:
                trace.damage = trace.damage or _damage(path, count, text[at:], error)
                return
            text, at = text[at:] + more, 0
            continue
        count += 1
        if isinstance(event, dict):
            with contextlib.suppress(border.Refused):
                trace.add(border.shallow(event, "an event"))
        if len(trace) >= MOST_EVENTS:
            trace.damage = f"{path}: more than {MOST_EVENTS} events; the rest was left out"
            return


def _pieces(path: Path, trace: Trace) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with _open(path) as file:
            while piece := file.read1(_CHUNK):
                yield decoder.decode(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        trace.damage = f"{path}: the gzip stream is cut or damaged ({error}); what is whole was read"
    except border.Refused as error:
        raise SourceError(str(error)) from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    return border.open_packed(path)


def _read_head(head: str, trace: Trace) -> None:
    base = re.search(r'"baseTimeNanoseconds"\s*:\s*(\d{1,19})', head)
    device = re.search(r'"deviceProperties"[^]]*?"name"\s*:\s*"([^"]{1,100})"', head)
    trace.base_s = int(base[1]) / 1e9 if base else 0.0
    trace.device = border.printable(device[1], 100) if device else ""


def _damage(path: Path, count: int, rest: str, error: Exception) -> str:
    why = "broken" if len(rest) >= _LONGEST_EVENT or isinstance(error, RecursionError) else "cut or broken"
    return f"{path}: {why} after event {count}; the {count} events before were read"


def trait_of(name: str, args: Mapping[str, Any]) -> Trait:
    """Return what the recorded shapes of an operator say (``record_shapes=True``), or the empty trait."""
    dims = args.get("Input Dims")
    if not isinstance(dims, list) or not dims or not isinstance(dims[0], list):
        return _NO_TRAIT
    first = dims[0]
    if name == "aten::cat":
        concrete = args.get("Concrete Inputs")
        axis = _whole(concrete[1], None) if isinstance(concrete, list) and len(concrete) > 1 else None
        rank = len(first[0]) if first and isinstance(first[0], list) else -1
        # Counted from the end, so that one rule covers both spellings.
        return Trait(rank, axis - rank if axis is not None and axis >= 0 and rank > 0 else axis)
    sizes: tuple[int, ...] = ()
    if name == "aten::embedding" and len(dims) > 1 and isinstance(dims[1], list) and first:
        sizes = tuple(_whole(size, 0) for size in (first[0], *dims[1]))
    return Trait(min(len(first), 9), None, sizes)


def _number(value: object) -> float | None:
    """Return a finite number; old traces write times as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: object, otherwise: Any = -1) -> Any:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 2**62 else otherwise


def _interned(value: Any, ids: dict[Any, int], values: list[Any]) -> int:
    found = ids.get(value)
    if found is None:
        found = ids[value] = len(values)
        values.append(value)
    return found


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
