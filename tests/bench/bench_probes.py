"""What probes cost: `python -m tests.bench.bench_probes [--rounds N] [--steps S]`.

Throughput with the flight recorder on and off, in short interleaved rounds of one process under one load (the shipped
model, compressed, block kernels: the shortest steps, so the largest share), as the median of the rounds' ratios. The
cost of a probe point that is off: how often one is passed in a step times what passing it takes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import timeit
from pathlib import Path
from time import perf_counter

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from engine.exposition import LATENCIES, Histogram
from engine.instruments import REQUEST_COLUMNS, Instruments, columns
from engine.knobs import Knobs
from engine.llm import Engine
from engine.weights import load_shipped
from engine.workload import Load, RecallLoad
from probes.recorder import Recorder
from probes.ring import RingWriter

GUARDS_PER_LAYER = 8
"""``is not None`` tests passed in one layer of a decode step: two in DecodeAttend, the rest in the kernels."""
GUARDS_PER_STEP = 4
CLOCKS_PER_STEP = 10
"""Timestamps of a step's outline, which are taken whether probes are on or not."""


def main() -> int:
    """Print the table; exit code 1 when probes cost more than two per cent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(2)
    config, model = load_shipped()
    knobs = Knobs(policy="combined", kernels="block")
    engine = Engine(config, model, knobs, pool_bytes=512 << 20, max_context=4096)
    engine.warm_up()
    load = RecallLoad(Load(clients=12, documents=2, document_tokens=3840, new_tokens=96))
    instruments = _instruments(config.layers)
    _run(engine, load, 300)
    ratios = []
    for number in range(options.rounds):
        pair = {}
        for on in (number % 2 == 0, number % 2 == 1):
            engine.probe = instruments if on else None
            pair[on] = _run(engine, load, options.steps)
        ratios.append(pair[True][0] / pair[False][0])
    engine.probe = None
    step_s = _run(engine, load, options.steps)[1]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"throughput with probes on / off: median {middle:.4f} (quartiles {low:.4f} to {high:.4f})")
    print(f"  over {options.rounds} pairs of {options.steps} decode steps each")
    print(_off_cost(config.layers, step_s))
    return int(middle < 0.98)


def _instruments(layers: int) -> Instruments:
    directory = Path(tempfile.mkdtemp())
    ring = RingWriter({}, columns(layers), REQUEST_COLUMNS, directory=directory)
    return Instruments(Recorder(ring, columns(layers), REQUEST_COLUMNS), {name: Histogram() for name in LATENCIES})


def _run(engine: Engine, load: RecallLoad, steps: int) -> tuple[float, float]:
    """Tokens per second and seconds per step over ``steps`` steps that only decode; prefill steps are not counted."""
    tokens, took, done = 0, 0.0, 0
    while done < steps:
        load.top_up(engine)
        prefilling = bool(engine.scheduler.waiting) and len(engine.scheduler.running) < engine.knobs.max_running
        before, started = engine.tokens_generated, perf_counter()
        engine.step()
        if not prefilling:
            took += perf_counter() - started
            tokens += engine.tokens_generated - before
            done += 1
    return tokens / took, took / steps


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
