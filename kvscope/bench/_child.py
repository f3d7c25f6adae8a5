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
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from kvscope.errors import SourceError, UsageError
from kvscope.progress import Bar
from kvscope.sources.builtin import environment

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
