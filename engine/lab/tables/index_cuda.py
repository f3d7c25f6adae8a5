"""Choosing, collecting and reading blocks of one layer on a CUDA device: `python -m engine.lab.tables.index_cuda`.

Prints the JSON that `index_cpu` prints for a CPU. Bfloat16, 32 query and 8 kv heads, 128 wide, blocks of 64
tokens, in the order of memory and in random order; medians over replays of graphs whose calls read disjoint inputs, so
the L2 is cold. Parts are differences: choosing is choice and reading less reading alone. `generic` collects before it
multiplies: `gather` is that copy alone, made once more. `block` collects nothing: it reads pages where they lie.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from engine.devices._base import Batch
from engine.devices._plain import PlainReader, pages
from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.kernels._cuda.operators import ListReader
from engine.kernels._cuda.pool import PagedPool
from engine.lab.tables.kernels_cuda import SHAPE, TOKENS, batches, chosen_and_read, timed
from engine.lab.tables.timing import copy_bandwidth, sets_for

ORDERS = ("memory", "random")
MOST_PLAIN = 4
"""Disjoint inputs for the generic operators: their copies take room of their own."""
Timed = Callable[[Sequence[Callable[[], object]], int], float]
"""Microseconds a call; a round makes so many calls at least."""
Row = dict[str, object]


def rows_of(shape: KVGeometry, batch: int, context: int, keep: Keep, device: str, clock: Timed) -> Iterator[Row]:
    """Both kernels over the same pages, in one order and then in the other; context in whole blocks."""
    read = batch * keep.blocks_for(context) * shape.kv_heads * shape.hot_page_bytes
    pool, sets = inputs(shape, batch, context, keep, sets_for(read) if device != "cpu" else 2, device)
    every = torch.arange(pool.place.numel(), dtype=torch.int32, device=device)
    queries = [torch.randn(batch, shape.q_heads, shape.head_dim, device=device).to(pool.hot.dtype) for _ in sets]
    for order in ORDERS:
        places = every if order == "memory" else every[torch.randperm(len(every), device=device)]
        pool.place.copy_(places.view_as(pool.place))
        block = [ListReader([pool], one, keep) for one in sets]
        yield {"kernels": "block", "order": order, "context": context, **of_block(block, queries, clock)}
        plain = [PlainReader([pool], one, keep) for one in sets[:MOST_PLAIN]]
        yield {"kernels": "generic", "order": order, "context": context, **of_generic(plain, queries, clock)}


def inputs(
    shape: KVGeometry, batch: int, context: int, keep: Keep, count: int, device: str
) -> tuple[PagedPool, list[Batch]]:
    """A pool of random full pages and representatives, and disjoint batches over it."""
    blocks = count * batch * (context // shape.block_tokens)
    pool = PagedPool.empty(shape, blocks, blocks * shape.kv_heads, device=device)
    for part in pool.hot.split(1 << 14):  # type: ignore[no-untyped-call]
        part.normal_()
    pool.reps.normal_(std=shape.block_tokens**-0.5)
    return pool, batches(keep, batch, context, count, device)


def of_block(readers: Sequence[ListReader], queries: Sequence[torch.Tensor], clock: Timed) -> dict[str, float]:
    """Milliseconds of choosing and of reading what was chosen."""
    pairs = list(zip(readers, queries, strict=False))
    for reader, q in pairs:
        reader.select(0, q)
    attend = clock([partial(reader.attend, 0, q, None) for reader, q in pairs], 12)
    both = clock([partial(chosen_and_read, reader, q) for reader, q in pairs], 12)
    return {"index": (both - attend) / 1e3, "gather": 0.0, "attend": attend / 1e3}


def of_generic(readers: Sequence[PlainReader], queries: Sequence[torch.Tensor], clock: Timed) -> dict[str, float]:
    """Milliseconds of choosing, of copying what was chosen, and of the products over the copies."""
    pairs = list(zip(readers, queries, strict=False))
    for reader, q in pairs:
        reader.select(0, q)
    gather = clock([partial(collected, reader) for reader, _ in pairs], 2)
    read = clock([partial(reader.attend, 0, q, None) for reader, q in pairs], 2)
    both = clock([partial(chosen_and_read, reader, q) for reader, q in pairs], 2)
    return {"index": (both - read) / 1e3, "gather": gather / 1e3, "attend": (read - gather) / 1e3}


def collected(reader: PlainReader) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `PlainReader.attend` copies together before it multiplies."""
    return pages(reader.pools[0], reader.codes(0), zeros=False)


@torch.inference_mode()
def main(argv: Sequence[str]) -> int:
    """Print ``{"device", "threads", "copy_gb_per_s", "rows"}``; exit code 3 without a CUDA device."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.tables.index_cuda", description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 16384])
    parser.add_argument("--kept", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=7, help="as for a CPU; here every time is of seven replays")
    parser.add_argument("--threads", type=int, default=0, help="as for a CPU; the device uses none")
    asked = parser.parse_args(argv)
    if not torch.cuda.is_available():
        sys.stderr.write("no CUDA device is visible here\n")
        return 3
    keep = Keep(asked.kept, sink_tokens=TOKENS, window_tokens=TOKENS, block_tokens=TOKENS)
    copy, rows = copy_bandwidth(), []
    for context in asked.contexts:
        whole = -(-context // TOKENS) * TOKENS
        rows += list(rows_of(SHAPE, asked.batch, whole, keep, "cuda", timed))
        torch.cuda.empty_cache()
        sys.stderr.write(f"{asked.batch} x {whole}\n")
    found = {"device": torch.cuda.get_device_name(), "threads": 0, "copy_gb_per_s": copy / 1e9, "rows": rows}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
