"""Decode steps of the engine itself on a CUDA device: 8B shape, random weights, random KV (`gpu_fill`: what is real).

`python -m tests.bench.gpu_engine [BATCHxCONTEXT...]`. Dense, block-sparse, generic, and compressed (three quarters of
the pages int8) with block kernels. 64 steps are timed, one of which runs without a graph, in phases, as in service,
with the flight recorder on. "Kernels" is selection and attention of all layers alone, over the same pages, in a graph.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from time import perf_counter

import torch

from engine import devices
from engine.devices._base import Device
from engine.exposition import latency_histograms
from engine.instruments import REQUEST_COLUMNS, Instruments, columns
from engine.lab.tables.timing import replayed
from engine.llm import Engine
from engine.model import Decoder, ModelConfig
from engine.weights.random import random_weights, shape
from probes.recorder import Recorder
from probes.ring import RingWriter
from tests.bench.gpu_fill import engine_for

WARM, TIMED = 6, 64
SHAPES = ((8, 65536), (24, 32768))
WAYS = {
    "dense": {"policy": "full"},
    "block": {"policy": "block_sparse"},
    "compressed": {"policy": "combined"},
}
Found = dict[str, float]


def observed(engine: Engine) -> RingWriter:
    names = columns(engine.config.layers)
    ring = RingWriter({"engine": "bench"}, names, REQUEST_COLUMNS)
    engine.probe = Instruments(Recorder(ring, names, REQUEST_COLUMNS), latency_histograms())
    return ring


def steps(engine: Engine) -> Found:
    """Milliseconds of a step by the wall and on the device, and what was compiled or captured meanwhile."""
    for _ in range(WARM):
        engine.step()
    torch.cuda.synchronize()
    before, busy = engine.compiles[0], 0.0
    made = engine.tokens_generated
    began = perf_counter()
    for _ in range(TIMED):
        engine.step()
        busy += engine.runner.device_s
    wall = perf_counter() - began
    made = engine.tokens_generated - made
    assert made == TIMED * len(engine.scheduler.running), "a request waited or ended"
    found = {
        "step_ms": 1e3 * wall / TIMED,
        "device_ms": 1e3 * busy / TIMED,
        "gap": max(0.0, 1 - busy / wall),
        "tokens_per_s": made / wall,
        "compiles": engine.compiles[0] - before,
        "resident_gb": engine.cache.resident_bytes() / 1e9,
    }
    return found | {f"share_{name}": share for name, share in engine.runner.shares.items()}


@torch.inference_mode()
def kernels_alone(engine: Engine) -> float:
    """Milliseconds of selection and attention in all layers of a step."""
    engine.runner.land()
    mode, requests = engine.runner.modes.now(), engine.scheduler.running
    batch = engine.runner.modes.batch(engine.runner.modes.rows(len(requests)))
    reader, config = engine.runner.modes.reader(mode, batch), engine.config
    q = torch.randn(batch.requests, config.q_heads, config.head_dim, device="cuda").bfloat16()

    def call(layer: int) -> None:
        reader.select(layer, q)
        reader.attend(layer, q, None)

    calls = [lambda layer=layer: call(layer) for layer in range(config.layers)]
    return replayed(calls, least=1, replays=5) * config.layers / 1e3


def measure(config: ModelConfig, model: Decoder, device: Device, batch: int, context: int) -> dict[str, Found]:
    rows: dict[str, Found] = {}
    for name, changes in WAYS.items():
        began = perf_counter()
        engine = engine_for(config, model, device, batch, context, **changes)
        ring, filled = observed(engine), perf_counter() - began
        rows[name] = steps(engine) | {"kernels_ms": kernels_alone(engine), "fill_s": filled}
        show(batch, context, name, rows[name])
        if name == "block":
            engine.set_knobs({"kernels": "generic"})
            engine.warm_up()
            rows["generic"] = steps(engine)
            show(batch, context, "generic", rows["generic"])
        ring.close()
        del engine
        gc.collect()
        torch.cuda.empty_cache()
    return rows


def show(batch: int, context: int, name: str, row: Found) -> None:
    print(batch, context, name, json.dumps({k: round(v, 4) for k, v in row.items()}), flush=True)


def main() -> None:
    asked = [tuple(map(int, word.split("x"))) for word in sys.argv[1:]] or SHAPES
    config, device = shape("llama-8b"), devices.get("cuda")
    model = random_weights(config, 0, "cuda", torch.bfloat16)
    device.prepare(model)
    found: dict[str, object] = {}
    for batch, context in asked:
        rows = measure(config, model, device, batch, context)
        found[f"{batch}x{context}"] = rows
        dense, new = rows["dense"], rows["compressed"]
        allowed = dense["step_ms"] / (dense["step_ms"] - dense["kernels_ms"] + new["kernels_ms"])
        gained = dense["step_ms"] / new["step_ms"]
        print(
            f"{batch}x{context}: gain {gained:.2f} of {allowed:.2f} allowed: {(gained - 1) / (allowed - 1):.0%}; "
            f"generic {rows['generic']['tokens_per_s'] / dense['tokens_per_s']:.2f} of dense",
            flush=True,
        )
        (Path(os.environ.get("OUT", ".")) / "engine.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
