"""Test data: a source that plays a list, and an engine's counters made up by hand."""

from __future__ import annotations

from collections.abc import Mapping

from kvscope.errors import SourceError
from kvscope.sources.source import Description, Mark, Poll
from probes.sample import Sample, labels_of

START_S = 1_700_000_000.0
DENSE = {"linear": 0.24, "attend": 0.52, "host": 0.06, "sample": 0.02, "index": 0.0, "gather": 0.12}
COMPRESSED = {"linear": 0.21, "attend": 0.13, "host": 0.05, "sample": 0.02, "index": 0.17, "gather": 0.39}
IN_PLACE = {"linear": 0.40, "attend": 0.30, "host": 0.10, "sample": 0.04, "index": 0.10, "gather": 0.0}
_COUNTERS = {
    "linear": "time.linear",
    "attend": "time.attend",
    "host": "time.host",
    "sample": "time.sample",
    "index": "sparse.index_time",
    "gather": "time.gather",
}
TAGS = {"model": "made-up", "workload": "steady", "offered_load": "4"}


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self, now_s: float = START_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Engine:
    """Counters that grow; ``step`` gives one second of samples."""

    def __init__(self, layers: int = 4) -> None:
        self.layers = layers
        self.totals: dict[str, float] = {}
        self.shares: Mapping[str, float] = DENSE
        self.rate, self.kept, self.resident = 400.0, 1.0, 200e6

    def become(self, shares: Mapping[str, float], rate: float, resident: float, kept: float) -> None:
        """Change the configuration."""
        self.shares, self.rate, self.resident, self.kept = shares, rate, resident, kept

    def step(self, t: float) -> list[Sample]:
        """The samples of second ``t``."""
        wiggle = 1 + 0.01 * ((int(t) * 7) % 5 - 2)
        grown = {
            "time.step": 1.0,
            "time.decode": 0.9,
            "time.prefill": 0.1,
            "decompress.time": 0.0,
            "tier.transfer_time": 0.0,
            "tokens.generated": self.rate * wiggle,
            "batch.steps": 40,
            "batch.decode_steps": 40,
            "sched.preemptions": 0.0,
            "sparse.entries_read": 1e6 * self.kept,
            "sparse.entries_total": 1e6,
            "tier.hot_accesses": 800.0,
            "tier.cold_accesses": 200.0,
            "quality.tokens_right": 97.0,
            "quality.tokens_checked": 100.0,
            **{_COUNTERS[part]: 0.9 * share for part, share in self.shares.items()},
        }
        for metric, amount in grown.items():
            self.totals[metric] = self.totals.get(metric, 0.0) + amount
        gauges = {
            "kv.resident_bytes": self.resident * wiggle,
            "kv.reserved_bytes": 400e6,
            "kv.assumed_bytes": 300e6,
            "sched.running": 16.0,
            "sched.waiting": 8.0,
            "sched.max_running": 16.0,
            "batch.context_tokens": 2000.0,
            "sparse.kept_share_target": self.kept,
            "latency.ttft": 1.2 * wiggle,
            "latency.tpot": 0.024 * wiggle,
            "latency.e2e": 4.0 * wiggle,
            "sched.queue_time": 0.8,
            "latency.prefill_time": 0.4,
        }
        found = [Sample(metric, value, t) for metric, value in {**self.totals, **gauges}.items()]
        return found + [
            Sample("kv.bytes_per_layer", self.resident / self.layers, t, labels_of(layer=str(layer)))
            for layer in range(self.layers)
        ]


class ListSource:
    """Gives the polls it was told to, then nothing."""

    def __init__(self, kind: str = "ring") -> None:
        self.polls: list[Poll | SourceError] = []
        self.kind = kind
        self.closed = False

    def describe(self) -> Description:
        return Description(
            self.kind, "list", "made-up", "1", {"engine": "made-up", "version": "1", "device": "cpu", "cap": "16"}
        )

    def poll(self) -> Poll:
        if not self.polls:
            return Poll([])
        found = self.polls.pop(0)
        if isinstance(found, SourceError):
            raise found
        return found

    def close(self) -> None:
        self.closed = True


class Lever:
    """A controller that changes the engine above and notes how it was asked."""

    def __init__(self, engine: Engine, source: ListSource, clock: Clock, marks: bool, works: bool = True) -> None:
        self.engine, self.source, self.clock, self.marks, self.works = engine, source, clock, marks, works
        self.asked: list[tuple[dict[str, str], str]] = []

    def set(self, knobs: Mapping[str, str], mark: str = "") -> None:
        self.asked.append((dict(knobs), mark))
        if self.works:
            self.engine.become(IN_PLACE, 800.0, self.engine.resident, self.engine.kept)
        if self.marks:
            self.source.polls.append(Poll([], (Mark(mark, self.clock.now_s, {**TAGS, **knobs}),)))
