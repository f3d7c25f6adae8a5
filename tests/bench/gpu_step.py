"""A whole decode step on a CUDA device, 8B shape, random weights, random KV: `python -m tests.bench.gpu_step`.

Dense, generic (gather by token) and block-sparse over bfloat16 pages, and block-sparse with three quarters of the pages
int8. Steps run by CUDA graph, with the host's planning between them.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch

from engine.kernels._cuda.attend import attend, attend_pages
from engine.kernels._cuda.graph import StepGraphs, compiled
from engine.kernels._cuda.select import choose_pages
from engine.kernels._cuda.store import append_rows
from engine.kernels._cuda.tuning import choice_for, launch_for, processors
from tests.bench.gpu_model import DIM, KEPT, LAYERS, TOKENS, Step, Store, Weights
from tests.bench.gpu_timing import replayed

STEPS, WARM = 16, 3
SHAPES = ((8, 65536), (24, 32768))


def steps(step: Step, way: Callable[..., torch.Tensor], graphs: StepGraphs) -> dict[str, float]:
    """Milliseconds of a step by the wall, of its graph by events, and what was compiled or captured meanwhile."""
    lens = step.lens.tolist()
    for _ in range(WARM):
        graphs.replay(way, lambda: step.run(way))
    torch.cuda.synchronize()
    made, captured = compiled(attend_pages, choose_pages, append_rows), graphs.captures
    marks, taken = [], torch.empty(STEPS, len(lens), dtype=torch.int64, pin_memory=True)
    began = perf_counter()
    for i in range(STEPS):
        step.chooser.plan([n + i for n in lens])
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graphs.replay(way, lambda: step.run(way))
        end.record()
        taken[i].copy_(step.tokens, non_blocking=True)
        marks.append((start, end))
    torch.cuda.synchronize()
    wall = (perf_counter() - began) * 1000 / STEPS
    busy = sum(start.elapsed_time(end) for start, end in marks) / STEPS
    return {
        "wall_ms": wall,
        "graph_ms": busy,
        "gap": 1 - busy / wall,
        "tokens_per_s": len(lens) / wall * 1000,
        "compiles": compiled(attend_pages, choose_pages, append_rows) - made,
        "captures": graphs.captures - captured,
    }


def kernels_alone(step: Step, *, chosen: bool) -> float:
    """Milliseconds of attention, with selection if `chosen`, in all layers of a step."""
    q = torch.randn(len(step.lens), 32, DIM, device="cuda").bfloat16()
    out = torch.empty_like(q)

    def call(pool: object) -> None:
        if chosen:
            step.chooser.choose(q, pool, step.store.table, step.lens, step.work, step.how)
        attend(q, out, pool, step.work, DIM**-0.5, step.launch)

    calls = [lambda p=p: call(p) for p in step.store.pools]
    return replayed(calls, least=1, replays=5) * len(calls) / 1000


def measure(weights: Weights, batch: int, context: int, cold: float, ways: tuple[str, ...]) -> dict[str, object]:
    store = Store(LAYERS, batch, context, cold)
    found: dict[str, object] = {"resident_gb": store.resident_bytes / 1e9}
    lens = [context - TOKENS + 8] * batch
    for name in ways:
        pages = context // TOKENS
        read = pages if name == "dense" else int(pages * KEPT)
        launch = launch_for(batch * 8, read, processors(), cold=cold > 0)
        step = Step(weights, store, lens, launch, choice_for(batch * 8, pages))
        graphs = StepGraphs()
        row: dict[str, object] = dict(steps(step, getattr(step, name), graphs))
        if name != "generic":
            row["kernels_ms"] = kernels_alone(step, chosen=name == "block")
        found[name] = row
        print(
            batch,
            context,
            f"cold {cold}",
            name,
            json.dumps({k: round(float(v), 4) for k, v in row.items()}),
            flush=True,
        )
        del step, graphs
        gc.collect()
        torch.cuda.empty_cache()
    return found


def main() -> None:
    weights = Weights()
    rows: dict[str, object] = {}
    with torch.inference_mode():
        for batch, context in SHAPES:
            for cold, ways in ((0.0, ("dense", "block", "generic")), (0.75, ("block",))):
                rows[f"{batch}x{context} cold {cold}"] = measure(weights, batch, context, cold, ways)
                gc.collect()
                torch.cuda.empty_cache()
                (Path(os.environ.get("OUT", ".")) / "step.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
