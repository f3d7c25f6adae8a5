"""What probes cost: `python -m engine.lab.tables.probes [--steps N]` prints its figures as one JSON object.

One process, one load (the shipped model, compressed, block kernels: the shortest steps, so the largest share), the
flight recorder on for one decode step and off for the next. Throughput on / off compares the median step without with
the same and the median difference of neighbours, since a machine that slows for a while slows both of a pair; its
interval comes from resampling the pairs. A median says nothing of what only some steps do, so the row's own time is
told apart, with its mean. Then the cost of a probe point that is off: how often one is passed in a step times what
passing it takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import timeit
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from engine.exposition import latency_histograms
from engine.instruments import REQUEST_COLUMNS, Instruments, columns
from engine.knobs import Knobs
from engine.lab.workload import Load, RecallLoad
from engine.llm import Engine
from engine.weights.shipped import load_shipped
from probes.recorder import Recorder
from probes.ring import RingWriter

GUARDS_PER_LAYER = 8
"""``is not None`` tests passed in one layer of a decode step: two in DecodeAttend, the rest in the kernels."""
GUARDS_PER_STEP = 4
CLOCKS_PER_STEP = 10
"""Timestamps of a step's outline, which are taken whether probes are on or not."""


def main() -> int:
    """Print the ratio, its interval and pairs, and seconds: of a step, of a row, of probes that are off."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.tables.probes", description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    options = parser.parse_args()
    torch.set_num_threads(2)
    config, model = load_shipped()
    knobs = Knobs(policy="combined", kernels="block")
    engine = Engine(config, model, knobs, pool_bytes=512 << 20, max_context=4096)
    engine.warm_up()
    load = RecallLoad(Load(clients=12, documents=2, document_tokens=3840, new_tokens=96))
    instruments = TimedInstruments(config.layers)
    _pairs(engine, load, instruments, 150)
    pairs = _pairs(engine, load, instruments, options.steps // 2)
    draws = sorted(_ratio(random.choices(pairs, k=len(pairs))) for _ in range(300))
    # A row that another process interrupts takes milliseconds: the slowest hundredth says nothing about rows.
    rows = sorted(instruments.seconds)[: len(instruments.seconds) * 99 // 100]
    found = {
        "ratio": _ratio(pairs),
        "low": draws[7],
        "high": draws[292],
        "pairs": len(pairs),
        "step_s": statistics.median(off for _, off in pairs),
        "row_s": statistics.median(rows),
        "row_mean_s": statistics.mean(rows),
        "off_s": _off_s(config.layers),
    }
    json.dump(found, sys.stdout)
    return 0


class TimedInstruments(Instruments):
    """Knows what each row took: two more timestamps a step, which count as the probes'."""

    def __init__(self, layers: int) -> None:
        ring = RingWriter({}, columns(layers), REQUEST_COLUMNS, directory=Path(tempfile.mkdtemp()))
        super().__init__(Recorder(ring, columns(layers), REQUEST_COLUMNS), latency_histograms())
        self.seconds: list[float] = []

    def step(self, *what: Any) -> None:
        started = perf_counter()
        super().step(*what)
        self.seconds.append(perf_counter() - started)


def _ratio(pairs: list[tuple[float, float]]) -> float:
    off = statistics.median(off for _, off in pairs)
    return off / (off + statistics.median(on - off for on, off in pairs))


def _pairs(engine: Engine, load: RecallLoad, instruments: Instruments, count: int) -> list[tuple[float, float]]:
    """Seconds of ``count`` neighbouring decode steps with probes on and off, in turns which comes first."""
    pairs: list[tuple[float, float]] = []
    while len(pairs) < count:
        first = len(pairs) % 2 == 0
        one, other = (_step(engine, load, instruments if on else None) for on in (first, not first))
        if one is not None and other is not None:
            pairs.append((one, other) if first else (other, one))
    return pairs


def _step(engine: Engine, load: RecallLoad, probe: Instruments | None) -> float | None:
    """Seconds of one step, or None when it did more than decode a full batch."""
    load.top_up(engine)
    full = len(engine.scheduler.running) == engine.knobs.max_running
    engine.probe = probe
    started = perf_counter()
    ended = engine.step()
    took = perf_counter() - started
    return took if full and not ended else None


def _off_s(layers: int) -> float:
    """Seconds a step takes for probe points that are off: guards passed and timestamps taken, each times its cost."""
    count = 1_000_000
    bare = min(timeit.repeat("pass", number=count, repeat=5))
    guard_s = (min(timeit.repeat("if x is not None: pass", "x = None", number=count, repeat=5)) - bare) / count
    clock_s = min(timeit.repeat("c()", "from time import perf_counter as c", number=count, repeat=5)) / count
    return (GUARDS_PER_LAYER * layers + GUARDS_PER_STEP) * guard_s + CLOCKS_PER_STEP * clock_s


if __name__ == "__main__":
    sys.exit(main())
