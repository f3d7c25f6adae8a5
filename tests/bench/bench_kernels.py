"""Milliseconds of attention in one decode step, by kernel: `python -m tests.bench.bench_kernels`.

Layers are visited in turn, as a model does, and the kernels take turns, a few steps each, so that noise falls on all
alike and yet most steps follow one of their own kind, as in a service.
Dense reads a cache in which all is hot; the sparse ones read the same tokens, a tenth of the pages hot, the rest int8.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from engine.cache import KVCache
from engine.geometry import KVGeometry
from engine.kernels import DecodeBatch, Keep, Kernels, get
from engine.kernels.block import warm_up
from engine.memory import keep_freed_memory
from engine.timeline import Timeline

STEPS = 3
KEEP = Keep(0.25, sink_tokens=32, window_tokens=64)


@dataclass
class Row:
    """Milliseconds per layer, medians over the steps after the first turn."""

    name: str
    total: float
    phases: dict[str, float]


def make_cache(geometry: KVGeometry, batch: int, context: int, *, cold: bool) -> tuple[KVCache, DecodeBatch]:
    blocks = geometry.blocks_for(context) * batch
    pages = blocks * geometry.pages_per_block
    cache = KVCache(geometry, pages * geometry.hot_page_bytes * 4 // 3, blocks)
    ids = torch.tensor(cache.allocate(blocks))
    torch.manual_seed(0)
    cache.pool.floats.normal_()
    cache.finalise(ids)
    if cold:
        layer, block, head = torch.where(torch.rand(geometry.layers, blocks, geometry.kv_heads) > 0.1)
        for part in torch.arange(len(layer)).split(8192):
            cache.demote(layer[part], ids[block[part]], head[part])
    table = ids[torch.randperm(blocks)].view(batch, -1).int()
    return cache, DecodeBatch(table, torch.full((batch,), context, dtype=torch.int32))


def sdpa_packed(q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, scale: float) -> torch.Tensor:
    """The other candidate for a dense operator: pack the rows, then torch's own attention, group rows as queries."""
    shape = cache.geometry
    pages = cache.pool.floats.view(-1, 2, shape.block_tokens, shape.head_dim)
    both = pages[cache.page_offset[layer, batch.block_table.long()].transpose(1, 2) // shape.hot_page_bytes]
    k, v = (both[:, :, :, i].flatten(2, 3) for i in (0, 1))
    groups = q.view(len(q), shape.kv_heads, shape.group, shape.head_dim)
    return torch.nn.functional.scaled_dot_product_attention(groups, k, v, scale=scale)


def measure(geometry: KVGeometry, batch_size: int, context: int, repeats: int) -> list[Row]:
    hot, cold = (make_cache(geometry, batch_size, context, cold=cold) for cold in (False, True))
    q = torch.randn(batch_size, geometry.q_heads, geometry.head_dim)
    scale = geometry.head_dim**-0.5
    contenders: dict[str, tuple[Kernels, bool]] = {
        "dense": (get("dense"), False), "generic": (get("generic"), True), "block": (get("block"), True),
    }  # fmt: skip
    samples: dict[str, list[tuple[float, dict[str, float]]]] = {name: [] for name in (*contenders, "sdpa")}
    for turn in range(repeats * len(samples) * STEPS):
        name = list(samples)[turn // STEPS % len(samples)]
        timeline, started = Timeline(), perf_counter()
        for layer in range(geometry.layers):
            if name == "sdpa":
                sdpa_packed(q, layer, *hot, scale)
                continue
            kernels, sparse = contenders[name]
            cache, batch = cold if sparse else hot
            chosen = kernels.select(q, layer, cache, batch, KEEP) if sparse else None
            timeline.mark("select")
            kernels.attend(q, layer, cache, batch, chosen, scale, timeline.mark)
        samples[name].append((perf_counter() - started, timeline.seconds()))
    return [row(name, taken, geometry.layers) for name, taken in samples.items()]


def row(name: str, taken: list[tuple[float, dict[str, float]]], layers: int) -> Row:
    taken = taken[STEPS:]
    phases = {
        phase: 1e3 * median(spent.get(phase, 0.0) for _, spent in taken) / layers
        for phase in ("select", "gather", "decompress", "attend")
    }
    return Row(name, 1e3 * median(total for total, _ in taken) / layers, phases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--context", type=int, nargs="+", default=[2048, 8192, 16384])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--fault", action="store_true", help="let the C allocator return memory to the system")
    asked = parser.parse_args()
    if not asked.fault:
        keep_freed_memory()
    geometry = KVGeometry(asked.layers, kv_heads=2, q_heads=4, head_dim=64)
    warm_up(geometry)
    print(f"batch {asked.batch}, {geometry}, {torch.get_num_threads()} torch threads; ms per layer")
    print(
        f"{'context':>8} {'kernel':>8} {'total':>8} {'select':>8} {'gather':>8} {'decomp':>8} {'attend':>8}  dense/it"
    )
    for context in asked.context:
        rows = measure(geometry, asked.batch, context, asked.repeats)
        for it in rows:
            parts = " ".join(f"{it.phases[name]:8.3f}" for name in ("select", "gather", "decompress", "attend"))
            print(f"{context:8} {it.name:>8} {it.total:8.3f} {parts} {rows[0].total / it.total:9.2f}")


if __name__ == "__main__":
    main()
