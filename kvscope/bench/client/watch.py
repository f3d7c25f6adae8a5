"""What the server says of itself while it is loaded: KV bytes, queue, preemptions, power."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kvscope import signals
from kvscope.account import Facts
from kvscope.account.found import facts_of
from kvscope.errors import KvscopeError
from kvscope.signals.reading import Missing, Reading
from kvscope.sources import open_target
from kvscope.sources.source import Description, Mark, Source
from kvscope.store import Store

EVERY_S = 0.5
SIGNALS = {
    "kv_resident_bytes": "KV resident",
    "kv_usage_ratio": "KV usage",
    "running_requests": "running",
    "waiting_requests": "waiting",
    "preemptions_per_s": "preemptions",
    "queue_time_mean_s": "queue time",
    "generation_tokens_per_s": "generated",
}
"""What is asked of the server, and how a table calls it."""
POWER = "gpu.power"


class Watch:
    """Polls a source in a thread of its own; `level` marks the stretch that a level took."""

    def __init__(self, source: Source | None, problem: str = "") -> None:
        self.problem = problem
        self._source = source
        self._store = Store()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        if source is not None:
            self._thread.start()

    @contextmanager
    def level(self, key: str) -> Iterator[None]:
        """What is polled inside belongs to ``key``."""
        self._mark(key)
        try:
            yield
        finally:
            self._mark("between")

    def readings(self, key: str) -> dict[str, Reading | Missing]:
        """Return what the server said of a level; empty when nobody watched it."""
        with self._lock:
            if key not in {segment.name for segment in self._store.segments}:
                return {}
            segment = self._store.segment(key)
            return {name: signals.compute(name, self._store, segment) for name in SIGNALS}

    def joules(self, key: str) -> float | None:
        """Return the energy of all GPUs of this machine during a level, or None where nobody measures power."""
        with self._lock:
            if key not in {segment.name for segment in self._store.segments}:
                return None
            segment, total = self._store.segment(key), 0.0
            labels = self._store.keys(POWER)
            for label in labels:
                _, values = self._store.series(POWER, label, segment.start_s, segment.end_s)
                total += sum(values) / len(values) * (segment.end_s - segment.start_s) if values else 0.0
            return total if labels else None

    def facts(self, target: str, config: str | None, gpu: str | None) -> Facts:
        """Return what is known of model and device: said, or told by what was watched. UsageError."""
        about = self._source.describe() if self._source is not None else Description("load", target)
        return facts_of(target, about, self._store, config, gpu)

    def close(self) -> None:
        """Stop polling."""
        self._stop.set()
        if self._source is not None:
            self._thread.join()
            self._source.close()

    def _mark(self, name: str) -> None:
        if self._source is not None:
            with self._lock:
                self._store.mark(Mark(name, time.time()))

    def _run(self) -> None:
        assert self._source is not None
        while not self._stop.wait(EVERY_S):
            try:
                poll = self._source.poll()
            except KvscopeError as error:
                self.problem = str(error)
                return
            with self._lock:
                self._store.add(poll.samples)
            if poll.ended:
                return


def open_watch(target: str | None) -> Watch:
    """Watch a target if it can be read; when not, say why and load it all the same."""
    if target is None:
        return Watch(None, "not watched")

    try:
        return Watch(open_target(target, machine=True))
    except KvscopeError as error:
        return Watch(None, str(error))
