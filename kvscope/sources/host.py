"""The machine an engine runs on: processor use, and the engine's process when it is known."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from kvscope.sources.source import Description, Poll
from probes.sample import Sample


class HostSource:
    """Processor and memory readings; use since the poll before, so the first poll has none of it."""

    def __init__(self, pid: int | None = None, *, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._pid = pid
        self._process: psutil.Process | None = None
        self._notices: list[str] = []
        self._primed = False
        if pid is not None:
            try:
                self._process = psutil.Process(pid)
            except psutil.Error:
                self._notices.append(f"process {pid} is not there: no processor and memory readings of it")

    def describe(self) -> Description:
        return Description("host", "this machine" if self._pid is None else f"this machine, pid {self._pid}")

    def poll(self) -> Poll:
        t = self._wall()
        samples = []
        busy = psutil.cpu_percent(interval=None) / 100
        if self._primed:
            samples.append(Sample("host.cpu_util", busy, t))
        samples += self._process_samples(t)
        self._primed = True
        notices, self._notices = tuple(self._notices), []
        return Poll(samples, notices=notices)

    def close(self) -> None:
        """Nothing is held open."""

    def _process_samples(self, t: float) -> list[Sample]:
        if self._process is None:
            return []
        try:
            with self._process.oneshot():
                cores = self._process.cpu_percent(interval=None) / 100
                resident = float(self._process.memory_info().rss)
        except psutil.Error as error:
            self._notices.append(f"process {self._pid}: no more readings ({type(error).__name__})")
            self._process = None
            return []
        samples = [Sample("host.process_rss", resident, t)]
        if self._primed:
            samples.append(Sample("host.process_cpu", cores, t))
        return samples
