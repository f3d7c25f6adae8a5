"""Choosing, collecting and reading blocks of one layer, each timed apart: `python -m engine.lab.tables.index_cpu`.

The same blocks are read in the order in which they lie in memory and in random order: what differs between the two is
what the order costs. Keys and values are random, and each call has queries of its own (see `kernels_cpu`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median

import numba
import torch

from engine import memory
from engine.cache import KVCache
from engine.geometry import KVGeometry
from engine.kernels import DecodeBatch, Keep, get
from engine.kernels.block import warm_up
from engine.lab.tables.kernels_cpu import IN_A_ROW, Shape, filled
from engine.timeline import Timeline

KERNELS, ORDERS = ("generic", "block"), ("memory", "random")


@dataclass(frozen=True)
class Row:
    """Median milliseconds of one layer of one decode step: `index` chooses, `gather` collects what was chosen."""

    kernels: str
    order: str
    context: int
    index: float
    gather: float
    attend: float


def rows_of(shape: Shape, rounds: int) -> Iterator[Row]:
    """Both kernels in both orders, taking turns so that noise falls on all alike, the first call of each turn left out:
    it pays for what the contender before it left in the caches and asleep.
    """
    cache, shuffled = filled(shape)
    ordered = DecodeBatch(shuffled.block_table.flatten().sort().values.view_as(shuffled.block_table),
                          shuffled.context_lens)  # fmt: skip
    batches = {"memory": ordered, "random": shuffled}
    spent: dict[tuple[str, str], list[tuple[float, float, float]]] = {pair: [] for pair in product(KERNELS, ORDERS)}
    numbers = torch.Generator().manual_seed(2)
    for _, pair, turn in product(range(rounds), spent, range(IN_A_ROW)):
        q = torch.randn(shape.batch, shape.geometry.q_heads, shape.geometry.head_dim, generator=numbers)
        times = once(pair[0], q, shape, cache, batches[pair[1]])
        if turn:
            spent[pair].append(times)
    for (kernels, order), many in spent.items():
        index, gather, attend = (1e3 * median(part) for part in zip(*many, strict=True))
        yield Row(kernels, order, shape.context, index, gather, attend)


def once(kernels: str, q: torch.Tensor, shape: Shape, cache: KVCache, batch: DecodeBatch) -> tuple[float, float, float]:
    """Seconds of choosing, collecting (turning cold rows back included) and attending."""
    timeline, kernel = Timeline(), get(kernels)
    chosen = kernel.select(q, 0, cache, batch, shape.keep)
    timeline.mark("select")
    kernel.attend(q, 0, cache, batch, chosen, shape.geometry.head_dim**-0.5, timeline.mark)
    spent = timeline.seconds()
    return spent["select"], spent.get("gather", 0.0) + spent.get("decompress", 0.0), spent["attend"]


def main(argv: Sequence[str]) -> int:
    """Print ``{"threads", "rows"}``."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.tables.index_cpu", description=__doc__)
    for name, default in (("kv-heads", 8), ("q-heads", 32), ("head-dim", 128), ("block-tokens", 64), ("batch", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 16384])
    parser.add_argument("--kept", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args(argv)
    memory.keep_freed_memory()
    torch.set_num_threads(asked.threads)
    numba.set_num_threads(min(asked.threads, numba.config.NUMBA_NUM_THREADS))
    geometry = KVGeometry(1, asked.kv_heads, asked.q_heads, asked.head_dim, asked.block_tokens)
    warm_up(geometry)
    keep = Keep(asked.kept, block_tokens=asked.block_tokens)
    rows = [
        asdict(row)
        for context in asked.contexts
        for row in rows_of(Shape(geometry, asked.batch, context, keep), asked.rounds)
    ]
    json.dump({"threads": asked.threads, "rows": rows}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
