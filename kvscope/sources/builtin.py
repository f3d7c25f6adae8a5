"""Starts the built-in engine in a child process, so that it is watched like any other engine."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from kvscope import BUNDLED
from kvscope.errors import SourceError, UsageError
from kvscope.sources.control import EngineControl

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 10.0
_NEEDS = ("torch", "numba", "safetensors", "engine")


class BuiltinEngine:
    """A child process running `engine`. It ends with `stop`, and by itself when this process is gone."""

    def __init__(self, process: subprocess.Popen[bytes], ready: Mapping[str, Any], log: IO[bytes]) -> None:
        self._process, self._log = process, log
        self.pid, self.port = int(ready["pid"]), int(ready["port"])
        self.ring = Path(ready["ring"]) if ready["ring"] else None
        self.control = EngineControl(self.ring) if self.ring else None

    @classmethod
    def start(
        cls, knobs: Mapping[str, str], options: tuple[str, ...] = (), tick: Callable[[float], None] | None = None
    ) -> BuiltinEngine:
        """Start an engine with ``knobs`` (``load.*`` too) and wait until it serves; ``tick`` hears the seconds waited.

        UsageError when the engine extra is not installed or a knob is wrong, SourceError when it does not come up.
        """
        missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(f"the built-in engine needs {', '.join(missing)}: pip install 'kvscope[engine]'")
        settings = [word for name, value in knobs.items() for word in ("--set", f"{name}={value}")]
        log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "engine", "--stdin-guard", *settings, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )
        try:
            return cls(process, _wait_ready(process, log, tick or (lambda _: None)), log)
        except BaseException:
            _end(process)
            log.close()
            raise

    def exit_code(self) -> int | None:
        """Return the engine's exit code (negative: the signal that ended it), or None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """Return the end of what the engine wrote to stderr."""
        return "" if self._log.closed else _tail(self._log)

    def stop(self, *, keep_recorder: bool = True) -> None:
        """End the engine in good order, or not, but end it. The flight recorder stays unless told otherwise."""
        _end(self._process)
        self._log.close()
        if self.ring is not None and not keep_recorder:
            self.ring.unlink(missing_ok=True)


def environment() -> dict[str, str]:
    """Variables with which a child finds the same `engine` and `probes` as this process, from a bare checkout too.

    It is started with `-P`: what lies in the folder it is started from is none of its modules.
    """
    here = Path(__file__).resolve().parents[1]
    roots = [str(one) for one in (BUNDLED, here.parent) if one.is_dir()]
    path = [*roots, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}


def _wait_ready(process: subprocess.Popen[bytes], log: IO[bytes], tick: Callable[[float], None]) -> dict[str, Any]:
    assert process.stdout is not None
    started = time.monotonic()
    while (waited := time.monotonic() - started) < START_TIMEOUT_S:
        tick(waited)
        if not select.select([process.stdout], [], [], 0.25)[0]:
            continue
        line = process.stdout.readline()
        if not line:
            raise SourceError(f"the engine ended before it was ready: {_tail(log) or 'it said nothing'}")
        fact = json.loads(line)
        if "error" in fact:
            raise UsageError(fact["error"])
        ready: dict[str, Any] = fact["ready"]
        return ready
    raise SourceError(f"the engine was not ready after {START_TIMEOUT_S:.0f} s: {_tail(log) or 'it said nothing'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read()[-4000:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def split_knobs(words: Iterable[str]) -> dict[str, str]:
    """Split ``NAME=VALUE`` words; UsageError for a word without a name or an equals sign."""
    knobs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--set {word!r}: expected NAME=VALUE")
        knobs[name] = value
    return knobs
