"""Runs a measurement of the engine's package in a process of its own: `python -m engine.NAME`, JSON on its output."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvscope.errors import SourceError, UsageError
from kvscope.sources.builtin import environment

NEEDS = ("torch", "numba", "engine")


def run_module(module: str, words: Sequence[str], tick: Callable[[float], None]) -> Any:
    """Return what it printed; UsageError where the engine is not installed, SourceError when it failed."""
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise UsageError(f"{module} needs {', '.join(missing)}: pip install 'kvscope[engine]'")
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", module, *words]
        with subprocess.Popen(command, stdout=said, stderr=log, env=environment()) as child:
            try:
                while child.poll() is None:
                    tick(time.monotonic() - started)
                    time.sleep(0.1)
            except BaseException:
                child.kill()
                raise
        said.seek(0), log.seek(0)
        if child.returncode:
            raise SourceError(f"{module}: {(log.read().strip() or 'it said nothing').splitlines()[-1]}")
        return json.load(said)
