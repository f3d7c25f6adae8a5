"""Decode attention of one layer by kernel, batch and context, as JSON: `python -m engine.lab.tables.kernels_cpu`.

Keys and values are random, the list of pages is in random order, and each call has queries of its own, so that what a
sparse kernel reads was not read just before. Contenders take turns, so that noise falls on all alike, a few calls each,
so that most follow one of their own kind, as in a service; a time is the median of its calls. `dense` is the faster of
torch's attention over rows packed beforehand (`sdpa`) and of the kernel that reads pages (`paged`). Choosing is timed
apart from attending: `select` is the choice of the block kernels, `select+block` is choice and reading together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from time import perf_counter

import numba
import torch

from engine import forms, memory
from engine.cache import KVCache
from engine.geometry import FLOAT_BYTES, KVGeometry
from engine.kernels import DecodeBatch, Keep, get
from engine.kernels._base import Selection
from engine.kernels.block import warm_up
from engine.pool import host_pool

COPY_BYTES = 256 << 20
INT8 = forms.codes()["cold_int8"]
PART = 2048
"""Pages made cold at a time."""
IN_A_ROW = 5


@dataclass(frozen=True)
class Row:
    """`gb_per_s` of what the call must read, whatever it copies besides; `share` of the bandwidth of a plain copy."""

    path: str
    batch: int
    context: int
    kept: float
    form: str
    ms: float
    gb_per_s: float
    share: float


@dataclass(frozen=True)
class Shape:
    """One measurement: a layer's heads, tokens to a block, requests and the tokens of each."""

    geometry: KVGeometry
    batch: int
    context: int
    keep: Keep


def copy_bandwidth(rounds: int) -> float:
    """Bytes read and written a second by torch's copy of a tensor far larger than any cache."""
    source, target = memory.zeros(COPY_BYTES), memory.zeros(COPY_BYTES)
    source.fill_(1)
    return 2 * COPY_BYTES / median(seconds(lambda: target.copy_(source)) for _ in range(rounds + 1))


def seconds(call: Callable[[], object]) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started


def filled(shape: Shape) -> tuple[KVCache, DecodeBatch]:
    """A cache of random keys and values whose blocks lie in random order."""
    blocks = shape.geometry.blocks_for(shape.context)
    total = shape.batch * blocks
    room = total * shape.geometry.pages_per_block + PART
    cache = KVCache(shape.geometry, room * shape.geometry.hot_page_bytes, total)
    ids = torch.tensor(cache.allocate(total))
    host_pool(cache).floats.normal_(generator=torch.Generator().manual_seed(0))
    cache.blocks.filled[ids] = shape.geometry.block_tokens
    cache.finalise(ids)
    table = ids[torch.randperm(total, generator=torch.Generator().manual_seed(1))].view(shape.batch, blocks).int()
    return cache, DecodeBatch(table, torch.full((shape.batch,), shape.context, dtype=torch.int32))


def packed(shape: Shape, cache: KVCache, batch: DecodeBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """The same keys and values as rows, [B, kv_heads, context, d] each."""
    tables = list(batch.block_table)
    both = [cache.read_dense(0, table, shape.context) for table in tables]
    k, v = (torch.stack([pair[i].transpose(0, 1).contiguous() for pair in both]) for i in (0, 1))
    return k, v


def contenders(
    shape: Shape, cache: KVCache, batch: DecodeBatch, rows: tuple[torch.Tensor, torch.Tensor] | None
) -> Iterator[tuple[str, Callable[[torch.Tensor, Selection], object]]]:
    """Path and call; a call takes this round's queries and the pages chosen for them."""
    scale = shape.geometry.head_dim**-0.5
    dense, generic, block = (get(name) for name in ("dense", "generic", "block"))
    if rows is not None:
        k, v = rows
        groups = (shape.batch, shape.geometry.kv_heads, shape.geometry.group, shape.geometry.head_dim)
        attention = torch.nn.functional.scaled_dot_product_attention
        yield "sdpa", lambda q, _: attention(q.view(groups), k, v, scale=scale)
        yield "paged", lambda q, _: dense.attend(q, 0, cache, batch, None, scale)
    yield "generic", lambda q, chosen: generic.attend(q, 0, cache, batch, chosen, scale)
    yield "block", lambda q, chosen: block.attend(q, 0, cache, batch, chosen, scale)
    yield "select", lambda q, _: block.select(q, 0, cache, batch, shape.keep)
    yield (
        "select+block",
        lambda q, _: block.attend(q, 0, cache, batch, block.select(q, 0, cache, batch, shape.keep), scale),
    )


def rows_of(shape: Shape, rounds: int, copy: float) -> Iterator[Row]:
    """All rows of one batch and context: full precision first, then the same pages as int8."""
    cache, batch = filled(shape)
    for form in ("hot", "cold_int8"):
        if form == "cold_int8":
            block, head = (cache.page_form[0] != INT8).nonzero(as_tuple=True)
            for part in torch.split(torch.arange(len(block)), PART):
                cache.demote(torch.zeros_like(part), block[part], head[part])
        calls = dict(contenders(shape, cache, batch, packed(shape, cache, batch) if form == "hot" else None))
        spent = taken(shape, cache, batch, calls, rounds)
        if "sdpa" in spent:
            spent = {"dense": min(spent["sdpa"], spent["paged"]), **spent}
        for path, time_s in spent.items():
            size = bytes_read(shape, cache, path, form)
            whole = path in ("dense", "sdpa", "paged")
            kept = 1.0 if whole else shape.keep.share
            yield Row(
                path, shape.batch, shape.context, kept, form, 1e3 * time_s, size / time_s / 1e9, size / time_s / copy
            )


def taken(
    shape: Shape,
    cache: KVCache,
    batch: DecodeBatch,
    calls: dict[str, Callable[[torch.Tensor, Selection], object]],
    rounds: int,
) -> dict[str, float]:
    """Median seconds of each call, the first turn left out."""
    spent: dict[str, list[float]] = {path: [] for path in calls}
    chooser, numbers = get("block"), torch.Generator().manual_seed(2)
    for turn in range((rounds + 1) * len(calls) * IN_A_ROW):
        path = list(calls)[turn // IN_A_ROW % len(calls)]
        q = torch.randn(shape.batch, shape.geometry.q_heads, shape.geometry.head_dim, generator=numbers)
        chosen = chooser.select(q, 0, cache, batch, shape.keep)
        spent[path].append(seconds(partial(calls[path], q, chosen)))
    return {path: median(times[IN_A_ROW:]) for path, times in spent.items()}


def bytes_read(shape: Shape, cache: KVCache, path: str, form: str) -> int:
    """From the work list: pages of the blocks to be read, and representatives of all blocks where a call chooses."""
    geometry, pairs = shape.geometry, shape.batch * shape.geometry.kv_heads
    blocks = geometry.blocks_for(shape.context)
    page = geometry.hot_page_bytes if form == "hot" else cache.arena.page_bytes[INT8]
    index = pairs * blocks * geometry.representative_bytes
    chosen = pairs * shape.keep.blocks_for(shape.context) * page
    whole = 2 * pairs * shape.context * geometry.head_dim * FLOAT_BYTES
    return {"select": index, "select+block": index + chosen, "block": chosen, "generic": chosen}.get(path, whole)


def main(argv: Sequence[str]) -> int:
    """Print ``{"copy_gb_per_s", "threads", "rows"}``; one line a finished shape goes to standard error."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.tables.kernels_cpu", description=__doc__)
    for name, default in (("kv-heads", 8), ("q-heads", 32), ("head-dim", 128), ("block-tokens", 64), ("threads", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batches", type=int, nargs="+", default=[8])
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 16384])
    parser.add_argument("--kept", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=4)
    asked = parser.parse_args(argv)
    memory.keep_freed_memory()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
    geometry = KVGeometry(1, asked.kv_heads, asked.q_heads, asked.head_dim, asked.block_tokens)
    warm_up(geometry)
    copy, rows = copy_bandwidth(asked.rounds), []
    keep = Keep(asked.kept, block_tokens=asked.block_tokens)
    for context in asked.contexts:
        for batch in asked.batches:
            rows += [asdict(row) for row in rows_of(Shape(geometry, batch, context, keep), asked.rounds, copy)]
            sys.stderr.write(f"{batch} x {context}\n")
    json.dump({"copy_gb_per_s": copy / 1e9, "threads": torch.get_num_threads(), "rows": rows}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
