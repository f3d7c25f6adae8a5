"""Decode steps of the engine itself on a CUDA device: 8B shape, random weights, random KV (`gpu_fill`: what is real).

`python -m tests.bench.gpu_engine [BATCHxCONTEXT...] [--ways dense block ...]`. Dense, block-sparse, generic, compressed
(three quarters of the pages int8), and a quarter (nearly all pages int4: 0.29 of full precision's bytes), with block
kernels. 64 steps are timed, one of which runs without a graph, in phases, as in service,
with the flight recorder on. "Kernels" is selection and attention of all layers alone, over the same pages, in a graph.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Sequence
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
    "quarter": {"policy": "combined", "hot_share": "0.03", "cold_form": "cold_int4"},
}
GENERIC = "generic"
"""The block engine with its kernels changed."""
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


def measure(
    config: ModelConfig, model: Decoder, device: Device, batch: int, context: int, ways: Sequence[str]
) -> dict[str, Found]:
    rows: dict[str, Found] = {}
    for name, changes in WAYS.items():
        if name not in ways:
            continue
        began = perf_counter()
        engine = engine_for(config, model, device, batch, context, **changes)
        ring, filled = observed(engine), perf_counter() - began
        rows[name] = steps(engine) | {"kernels_ms": kernels_alone(engine), "fill_s": filled}
        show(batch, context, name, rows[name])
        if name == "block" and GENERIC in ways:
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


def say(shape: str, rows: dict[str, Found]) -> None:
    """Of each way the gain over dense, of what its kernels' times allow, and its bytes."""
    dense = rows["dense"]
    for name, new in rows.items():
        gained = new["tokens_per_s"] / dense["tokens_per_s"]
        text = f"{shape} {name}: {gained:.2f} of dense, bytes {new['resident_gb'] / dense['resident_gb']:.3f}"
        if name not in ("dense", GENERIC):
            allowed = dense["step_ms"] / (dense["step_ms"] - dense["kernels_ms"] + new["kernels_ms"])
            text += f", {(gained - 1) / (allowed - 1):.0%} of the gain that {allowed:.2f} allows"
        print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu_engine", description=__doc__)
    parser.add_argument("shapes", nargs="*", metavar="BATCHxCONTEXT")
    parser.add_argument("--ways", nargs="+", default=[*WAYS, GENERIC], choices=[*WAYS, GENERIC])
    options = parser.parse_args()
    asked = [tuple(map(int, word.split("x"))) for word in options.shapes] or SHAPES
    config, device = shape("llama-8b"), devices.get("cuda")
    model = random_weights(config, 0, "cuda", torch.bfloat16)
    device.prepare(model)
    found: dict[str, object] = {}
    for batch, context in asked:
        rows = measure(config, model, device, batch, context, options.ways)
        found[f"{batch}x{context}"] = rows
        if "dense" in rows:
            say(f"{batch}x{context}", rows)
        (Path(os.environ.get("OUT", ".")) / "engine.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
