"""Leak soak: `python -m tests.bench.soak --minutes 10 [--format json]`.

An engine under load has its knobs changed at random (policies, forms, pools, host tier, admission, preemption). After
every round it is drained and emptied: then nothing may be held, in pool, host or tables. The process's memory is taken
at the same moments; what it gained from the middle third of the rounds to the last is reported. Exits 1 on a leak.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
from statistics import median
from time import perf_counter

import psutil

from kvscope.faults import Fault
from tests.faults import Run, start

MIB = 1 << 20
ROUND_S = 4.0
MOST_GROWTH_MIB = 24.0
"""Of the process from the middle third of the rounds to the last; the allocator's own play is a few MiB."""
CHOICES = {
    "policy": ("full", "window", "block_sparse", "heavy_hitters", "combined", "turn_aware"),
    "kernels": ("block", "generic"),
    "cold_form": ("cold_int8", "cold_int4", "cold_int2", "lowrank", "merged", "thinned"),
    "importance": ("blind", "aware"),
    "pool": ("arena", "arena", "split", "contiguous"),
    "host_mib": ("0", "32", "32", "32"),
    "host_share": ("0.0", "0.5"),
    "prefetch": ("0.0", "0.5"),
    "preemption": ("recompute", "swap", "swap"),
    "admission": ("static", "curve", "watermark"),
    "promote_after": ("0", "1"),
    "evict_share": ("0.0", "0.2"),
    "max_running": ("3", "8"),
    "step_tokens": ("0", "64"),
    "prefix_cache": ("on", "off"),
}
LOAD = {
    "load.clients": "8",
    "load.documents": "6",
    "load.document_tokens": "512",
    "load.new_tokens": "150",
    "load.turns": "2",
    "load.circle": "1",
    "load.jitter": "1",
    "load.long_tail": "1",
    "load.fresh": "1",
}


def main(argv: list[str]) -> int:
    """Run rounds for so many minutes; the report goes to standard output."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(argv)
    chance, process = random.Random(options.seed), psutil.Process()
    run = start(Fault("soak", "", "", {"pool_mib": "8"}, LOAD, (), {}), {})
    ends = perf_counter() + 60 * options.minutes
    resident: list[float] = []
    held: list[dict[str, int]] = []
    while perf_counter() < ends:
        run.engine.set_knobs({name: chance.choice(values) for name, values in CHOICES.items()})
        run.go(ROUND_S, 100_000)
        if left := emptied(run):
            held.append(left)
        gc.collect()
        resident.append(process.memory_info().rss / MIB)
    report = told(run, resident, held)
    print(json.dumps(report) if options.format == "json" else "\n".join(f"{k:28} {v}" for k, v in report.items()))
    return int(bool(report["leak"]))


def emptied(run: Run) -> dict[str, int]:
    """Let everything end, forget every prefix, and return what is still held (nothing, if all is well)."""
    engine = run.engine
    while engine.has_work:
        engine.step()
    engine.set_knobs({"prefix_cache": "off"})
    cache, tier = engine.cache, engine.residency.tier
    if tier is not None:
        tier.settle()
    cache.check()
    left = {
        "resident_bytes": cache.resident_bytes(),
        "blocks": cache.blocks.live,
        "host_bytes": cache.host.live_bytes if cache.host is not None else 0,
        "pool_bytes": cache.arena.pool_bytes - cache.arena.free_bytes,
        "importance": int(engine.residency.importance.count_nonzero()),
        "placed": int(engine.residency.placed.sum()),
    }
    run.sink.steps.clear()
    run.sink.requests.clear()
    return {name: value for name, value in left.items() if value}


def told(run: Run, resident: list[float], held: list[dict[str, int]]) -> dict[str, object]:
    """The report; medians of thirds, because one round's peak is not growth."""
    third = max(1, len(resident) // 3)
    growth = median(resident[-third:]) - median(resident[third : 2 * third] or resident)
    counts = run.engine.scheduler.counts
    return {
        "rounds": len(resident),
        "tokens_generated": run.engine.tokens_generated,
        "preemptions": counts.preemptions,
        "swaps": counts.swaps,
        "held_after_emptying": held,
        "process_mib_first": round(resident[0], 1),
        "process_mib_last": round(resident[-1], 1),
        "growth_mib": round(growth, 1),
        "leak": bool(held) or growth > MOST_GROWTH_MIB,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
