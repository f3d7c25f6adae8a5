"""What probes cost: `python -m tests.bench.bench_probes [--steps N]`.

One process, one load (the shipped model, compressed, block kernels: the shortest steps, so the largest share), the
flight recorder on for one decode step and off for the next. Throughput on / off compares the median step without with
the same and the median difference of neighbours, since a machine that slows for a while slows both of a pair; its
interval comes from resampling the pairs. A median says nothing of what only some steps do, so the row's own time is
told apart, with its mean. Then the cost of a probe point that is off: how often one is passed in a step times what
passing it takes.
"""

from __future__ import annotations

import argparse
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
from engine.llm import Engine
from engine.weights.shipped import load_shipped
from engine.workload import Load, RecallLoad
from probes.recorder import Recorder
from probes.ring import RingWriter

GUARDS_PER_LAYER = 8
"""``is not None`` tests passed in one layer of a decode step: two in DecodeAttend, the rest in the kernels."""
GUARDS_PER_STEP = 4
CLOCKS_PER_STEP = 10
"""Timestamps of a step's outline, which are taken whether probes are on or not."""


def main() -> int:
    """Print the figures; exit code 1 when probes cost more than two per cent."""
    parser = argparse.ArgumentParser(description=__doc__)
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
    ratio = _ratio(pairs)
    draws = sorted(_ratio(random.choices(pairs, k=len(pairs))) for _ in range(300))
    print(f"throughput with probes on / off: {ratio:.4f} (95 % interval {draws[7]:.4f} to {draws[292]:.4f})")
    print(f"  from {len(pairs)} pairs of decode steps, {1000 * statistics.median(off for _, off in pairs):.2f} ms each")
    print(_row_cost(instruments.seconds))
    print(_off_cost(config.layers, statistics.median(off for _, off in pairs)))
    return int(ratio < 0.98)


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


def _row_cost(seconds: list[float]) -> str:
    # A row that another process interrupts takes milliseconds: the slowest hundredth says nothing about rows.
    kept = sorted(seconds)[: len(seconds) * 99 // 100]
    middle, mean = 1e6 * statistics.median(kept), 1e6 * statistics.mean(kept)
    return f"  of which a row: {middle:.0f} µs (median), {mean:.0f} µs (mean)"


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


def _off_cost(layers: int, step_s: float) -> str:
    count = 1_000_000
    bare = min(timeit.repeat("pass", number=count, repeat=5))
    guard_ns = (min(timeit.repeat("if x is not None: pass", "x = None", number=count, repeat=5)) - bare) / count * 1e9
    clock_ns = min(timeit.repeat("c()", "from time import perf_counter as c", number=count, repeat=5)) / count * 1e9
    guards = GUARDS_PER_LAYER * layers + GUARDS_PER_STEP
    total_us = (guards * guard_ns + CLOCKS_PER_STEP * clock_ns) / 1000
    return (
        f"off: {guards} guards × {guard_ns:.1f} ns + {CLOCKS_PER_STEP} timestamps × {clock_ns:.0f} ns = "
        f"{total_us:.2f} µs a step, {100 * total_us / 1e6 / step_s:.4f} % of {1000 * step_s:.1f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
