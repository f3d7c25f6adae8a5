"""Has the built-in engine's accuracy laboratory do a job in a child process, and hears its rows as they come."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvscope.errors import SourceError, UsageError

MODULE = "engine.accuracy"
_NEEDS = ("torch", "numba", "safetensors", "engine")
_WORDS = 400


def told(order: Mapping[str, Any], total: int, done: int = 0) -> Iterator[dict[str, Any]]:
    """Yield each row under a bar of ``total`` parts, ``done`` of them finished before; as `rows` otherwise."""
    from kvscope.progress import Bar

    bar = Bar(total, done)
    try:
        for row in rows(order, bar.say):
            yield row
            bar.step()
    finally:
        bar.wipe()


def rows(order: Mapping[str, Any], says: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield each row; ``says`` hears what is being done.

    UsageError when the engine extra is not installed or the order is wrong, SourceError when the child breaks off.
    """
    from kvscope.sources.builtin import environment

    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the built-in engine needs {', '.join(missing)}: pip install 'kvscope[engine]'")
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", MODULE]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, env=environment(), text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order))
            process.stdin.close()
            for line in process.stdout:
                found = json.loads(line)
                if "error" in found:
                    raise UsageError(found["error"])
                if "says" in found:
                    says(found["says"])
                if "row" in found:
                    yield found["row"]
            if process.wait() != 0:
                log.seek(0)
                words = log.read().decode(errors="replace").strip()[-_WORDS:]
                raise SourceError(f"{MODULE} ended with {process.returncode}: {words or 'it said nothing'}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
