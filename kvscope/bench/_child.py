"""One runner for everything that the built-in engine measures in a process of its own: `python -m engine.NAME`.

What it finds it writes to its output, a JSON object a line; what it has to say otherwise goes to its standard error.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any, Generic, TypeVar

from kvscope.errors import SourceError, UsageError
from kvscope.progress import Bar
from kvscope.sources.builtin import environment

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


NEEDS = ("torch", "numba", "safetensors", "engine")
END_S = 10.0
_TICK_S = 0.5
_SAID = 400

Fact = dict[str, Any]


def facts(
    module: str,
    words: Sequence[str] = (),
    order: Mapping[str, Any] | None = None,
    tick: Callable[[float], None] = lambda _: None,
) -> Iterator[Fact]:
    """Yield what ``module`` finds, as it comes; ``tick`` hears the seconds while nothing does.

    An ``order`` is written to its input, which ends with it; without one the input stays open until this generator
    ends, so that a child with processes of its own knows when to end them. UsageError when the engine extra is not
    installed or the child refuses (``error``); SourceError when it has ``lost`` one of its own, or breaks off.
    """
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise UsageError(f"{module} needs {', '.join(missing)}: pip install 'kvscope[engine]'")
    pipe, started = subprocess.PIPE, time.monotonic()
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-P", "-m", module, *words]
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=environment(), text=True)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            if order is not None:
                child.stdin.write(json.dumps(order))
                child.stdin.close()
            heard = _heard(child.stdout)
            while True:
                try:
                    line = heard.get(timeout=_TICK_S)
                except Empty:
                    tick(time.monotonic() - started)
                    continue
                if line is None:
                    break
                yield _checked(json.loads(line))
            if child.wait() != 0:
                log.seek(0)
                said = log.read().decode(errors="replace").strip()[-_SAID:]
                raise SourceError(f"{module} ended with {child.returncode}: {said or 'it said nothing'}")
        finally:
            _end(child, END_S if order is None else 0.0)


def found(module: str, words: Sequence[str], tick: Callable[[float], None]) -> Fact:
    """Return the one object that ``module`` writes when it is finished."""
    all_facts = list(facts(module, words, tick=tick))
    if len(all_facts) != 1:
        raise SourceError(f"{module} wrote {len(all_facts)} objects; expected one")
    return all_facts[0]


def rows(order: Mapping[str, Any], total: int, done: int = 0) -> Iterator[Fact]:
    """Yield the rows of a job of the accuracy laboratory, under a bar of ``total`` parts, ``done`` of them before."""
    bar = Bar(total, done)
    try:
        for fact in facts("engine.lab.accuracy", order=order):
            if "says" in fact:
                bar.say(fact["says"])
            if "row" in fact:
                yield fact["row"]
                bar.step()
    finally:
        bar.wipe()


def _checked(fact: Fact) -> Fact:
    if "error" in fact:
        raise UsageError(fact["error"])
    if "lost" in fact:
        raise SourceError(fact["lost"])
    return fact


def _heard(stream: IO[str]) -> SimpleQueue[str | None]:
    """Return a queue that gets every line of a stream, and None at its end."""
    queue: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        with suppress(ValueError):  # closed beneath us: whoever waited has gone
            for line in stream:
                queue.put(line)
        queue.put(None)

    Thread(target=read, daemon=True).start()
    return queue


def _end(child: subprocess.Popen[str], patience_s: float) -> None:
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.close()
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()
