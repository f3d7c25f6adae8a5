"""Starts the ranks of one machine and watches them: when one ends, the others are told, and end too."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.lab.shards.lifeline import EXIT_OTHERS

END_S = 3.0
"""What others have to end by themselves once told; then they are killed."""
CULPRIT_S = 1.0
"""How long a rank that ended because of others may have been faster than the news of the one that is gone."""
Event = tuple[int, Mapping[str, Any] | int]
"""A rank, and a fact it said or the code it ended with."""


class RankLostError(Exception):
    """A rank ended in the middle; the message is the one line a person should read."""


@dataclass
class _Rank:
    process: subprocess.Popen[str]
    log: Path
    listener: threading.Thread
    pid: int = 0
    ring: str = ""
    done: bool = False
    code: int | None = None


@dataclass
class Launcher:
    """`tell` hears every fact: {"ready": …} once, then what the first rank says. `logs` is where stderr goes."""

    ranks: int
    device: str
    cells: Sequence[Mapping[str, Any]]
    tell: Callable[[Mapping[str, Any]], None]
    timeout_s: float = 30.0
    logs: Path | None = None
    _queue: queue.Queue[Event] = field(default_factory=queue.Queue)
    _all: list[_Rank] = field(default_factory=list)

    def run(self) -> None:
        """Until all are done. Raises RankLostError when one is lost; then none is left running."""
        with tempfile.TemporaryDirectory(prefix="kvscope-shards-") as folder:
            try:
                self._start(Path(folder))
                self._watch()
            finally:
                self._end_all()

    def stop(self) -> None:
        """From another thread or a signal handler: end all ranks; `run` then raises."""
        for one in self._all:
            if one.process.poll() is None:
                one.process.kill()

    def _start(self, folder: Path) -> None:
        cells, logs = folder / "cells.json", self.logs or folder
        cells.write_text(json.dumps(list(self.cells)), encoding="utf-8")
        run = f"{os.getpid()}-{time.time_ns():x}"
        for rank in range(self.ranks):
            log = logs / f"rank{rank}.log"
            words = (rank, self.ranks, f"file://{folder}/meeting", self.device, cells, run, self.timeout_s)
            with log.open("w", encoding="utf-8") as stderr:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "engine.lab.shards.rank", *map(str, words)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=_environment(),
                )  # fmt: skip
            listener = threading.Thread(target=self._listen, args=(rank, process), daemon=True)
            self._all.append(_Rank(process, log, listener))
            listener.start()

    def _listen(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._queue.put((rank, json.loads(line)))
        self._queue.put((rank, process.wait()))

    def _watch(self) -> None:
        while any(one.code is None for one in self._all):
            rank, fact = self._queue.get()
            if not isinstance(fact, int):
                self._hear(rank, fact)
                continue
            self._all[rank].code = fact
            if fact != 0 or not self._all[rank].done:
                raise RankLostError(self._lost(rank, fact))

    def _hear(self, rank: int, fact: Mapping[str, Any]) -> None:
        one = self._all[rank]
        if "pid" in fact:
            one.pid, one.ring = int(fact["pid"]), str(fact["ring"])
            if all(other.pid for other in self._all):
                self.tell({"ready": {"pids": [o.pid for o in self._all], "rings": [o.ring for o in self._all]}})
        elif "done" in fact:
            one.done = True
        else:
            self.tell(fact)

    def _lost(self, rank: int, code: int | None) -> str:
        """Tell the others, wait for them, and return the line."""
        began = time.monotonic()
        rank, code = self._culprit(rank, code)
        who = f"rank {rank} of {self.ranks} (pid {self._all[rank].process.pid}) {_how(code)}"
        self._say_gone(rank, who)
        stuck = self._await_others(time.monotonic() + END_S)
        if code == EXIT_OTHERS and stuck:
            rank, code = stuck[0], None
            who = (
                f"rank {rank} of {self.ranks} (pid {self._all[rank].process.pid}) {_how(None)} for {self.timeout_s:g} s"
            )
        took = time.monotonic() - began
        words = _last_line(self._all[rank].log) if code else ""
        others = self.ranks - 1
        ended = f"the other {others} ended {took:.1f} s later" if others else "it was the only one"
        forced = f", {len(stuck)} killed" if stuck else ""
        kept = f"; flight recorders stay in {Path(self._all[rank].ring).parent}" if self._all[rank].ring else ""
        return f"{who}{f' ({words})' if words else ''}; {ended}{forced}{kept}"

    def _culprit(self, rank: int, code: int | None) -> tuple[int, int | None]:
        """The rank that ended by itself, though one that ended because of it may have been heard first."""
        deadline = time.monotonic() + CULPRIT_S
        while code == EXIT_OTHERS and (left := deadline - time.monotonic()) > 0:
            try:
                other, fact = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(fact, int):
                self._all[other].code = fact
                if fact != EXIT_OTHERS:
                    return other, fact
        return rank, code

    def _say_gone(self, rank: int, who: str) -> None:
        for other, one in enumerate(self._all):
            if other != rank and one.code is None and one.process.stdin is not None:
                try:
                    one.process.stdin.write(f"gone {who}\n")
                    one.process.stdin.flush()
                except OSError:
                    continue

    def _await_others(self, deadline: float) -> list[int]:
        """The ranks that had to be killed."""
        stuck = []
        for rank, one in enumerate(self._all):
            try:
                one.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
                stuck.append(rank)
        return stuck

    def _end_all(self) -> None:
        self.stop()
        for one in self._all:
            one.process.wait()
            one.listener.join()
            for pipe in (one.process.stdin, one.process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()


def _how(code: int | None) -> str:
    if code is None:
        return "did not answer"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return "lost touch with the others" if code == EXIT_OTHERS else f"ended with {code}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _environment() -> dict[str, str]:
    """As this process's, with the same `engine` in reach, one thread a rank, and gloo on the loopback."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    given = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1"}
    return {**given, **os.environ, "PYTHONPATH": path}
