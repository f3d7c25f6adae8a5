"""Runs cells on ranks: `engine.shards` as a child process, for it needs torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvscope.bench._shards_log import ShardsLog
from kvscope.bench._shards_plan import ShardsPlan, Task, groups
from kvscope.errors import SourceError, UsageError
from kvscope.progress import Line

END_S = 10.0


def run_all(plan: ShardsPlan, log: ShardsLog, timeout_s: float, logs: Path | None) -> None:
    """Measure what the log does not have. SourceError with one line when a rank is lost."""
    missing = [name for name in ("torch", "numpy", "engine") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"sharding needs {', '.join(missing)}: pip install 'kvscope[engine]'")
    left = [task for task in plan.tasks if log.get(task) is None]
    line, done = Line(), len(plan.tasks) - len(left)
    try:
        for ranks, device, tasks in groups(left):
            line.show(f"{done} of {len(plan.tasks)}: starting {ranks} rank{'s' * (ranks > 1)}")
            pending, watch = list(tasks), ""
            for fact in _facts(ranks, device, tasks, timeout_s, logs):
                if "ready" in fact:
                    watch = ",".join(map(str, fact["ready"]["pids"]))
                else:
                    log.add(pending.pop(0), fact["found"])
                    done += 1
                what = f"{pending[0].cell['partition']} on {ranks}" if pending else "done"
                line.show(f"{done} of {len(plan.tasks)}: {what}   (kvscope attach {watch})")
    finally:
        line.wipe()


def _facts(
    ranks: int, device: str, tasks: Sequence[Task], timeout_s: float, logs: Path | None
) -> Iterator[dict[str, Any]]:
    """What the launcher says, a cell in the order of ``tasks``; it ends with this generator."""
    with tempfile.TemporaryDirectory(prefix="kvscope-bench-") as folder:
        cells = Path(folder, "cells.json")
        cells.write_text(json.dumps([dict(task.cell) for task in tasks]), encoding="utf-8")
        command = [sys.executable, "-m", "engine.shards", "--guard", "--ranks", str(ranks), "--device", device]
        command += ["--cells", str(cells), "--timeout", f"{timeout_s:g}", *(("--logs", str(logs)) if logs else ())]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        try:
            yield from _read(child)
        finally:
            _end(child)


def _read(child: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    assert child.stderr is not None
    for line in child.stdout:
        fact = json.loads(line)
        if "lost" in fact:
            raise SourceError(fact["lost"])
        yield fact
    if child.wait() != 0:
        words = child.stderr.read().strip().splitlines()
        raise SourceError(f"engine.shards ended with {child.returncode}: {words[-1] if words else 'no word'}")


def _end(child: subprocess.Popen[str]) -> None:
    """Its ranks end when their launcher's stdin closes."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    path = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
