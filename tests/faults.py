"""Runs a fault on an engine in this process, and reads its truth from the rows the engine leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter, process_time

import numba
import torch

from engine import settings
from engine.exposition import latency_histograms
from engine.instruments import REQUEST_COLUMNS, Instruments, columns
from engine.knobs import Knobs
from engine.lab.workload import Load, RecallLoad
from engine.llm import Engine
from engine.model import Decoder, ModelConfig
from engine.weights.shipped import load_shipped
from kvscope.faults import Fault, Truth
from probes.catalog import CATALOG
from probes.recorder import Recorder
from tests.unit.probes.sink import ListSink

WARM_STEPS = 20
"""Steps left out at the start: documents are being read, as in any measurement."""


@dataclass
class Run:
    """One engine with its load and its rows."""

    engine: Engine
    load: RecallLoad
    sink: ListSink
    names: list[str]
    first: int = 0
    values: dict[str, float] = field(default_factory=dict)

    def go(self, seconds: float, steps: int) -> None:
        """Step until either is used up; an idle engine passes its time as a process would.

        The seconds are the processor's own: a busy machine makes a run longer, and no emptier.
        """
        ends, done = process_time() + seconds, 0
        while process_time() < ends and done < steps:
            self.load.top_up(self.engine)
            if self.engine.has_work:
                self.engine.step()
                done += 1
            elif self.engine.probe is not None:
                started = perf_counter()
                while not self.engine.has_work and process_time() < ends:
                    self.load.top_up(self.engine)
                self.engine.probe.idle(perf_counter() - started)

    def cut(self) -> None:
        """What comes now is measured, what came before is not."""
        self.first = len(self.sink.steps) - 1

    def value(self, truth: Truth) -> float:
        """The truth's number over the rows since `cut`."""
        value = self._one(truth.counter)
        return value / max(self._one(truth.per), 1e-12) if truth.per else value

    def _one(self, name: str) -> float:
        column = self.names.index(name)
        rows = [row[column] for row in self.sink.steps[max(0, self.first) :]]
        return rows[-1] - rows[0] if CATALOG[name].kind == "counter" else sum(rows) / len(rows)


@lru_cache(maxsize=1)
def model() -> tuple[ModelConfig, Decoder]:
    """The shipped model, loaded once."""
    loaded = load_shipped()
    return loaded[0], loaded[1]


def start(fault: Fault, changes: Mapping[str, str]) -> Run:
    """An engine as `kvscope serve --fault` would start it, with ``changes`` on top."""
    config, decoder = model()
    knobs, load = settings.apply(Knobs(), Load(), {**fault.knobs, **changes})
    engine = Engine(
        config,
        decoder,
        knobs,
        pool_bytes=int(fault.flags.get("pool_mib", "768")) << 20,
        max_context=max(load.longest, 1024),
        block_tokens=int(fault.flags.get("block_tokens", "32")),
    )
    # One thread each: with more, a busy machine shows up in whichever part waits for the others.
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    engine.warm_up()
    names, sink = columns(config.layers), ListSink()
    engine.probe = Instruments(Recorder(sink, names, REQUEST_COLUMNS), latency_histograms())
    return Run(engine, RecallLoad(load), sink, names)
