"""Decode attention of one layer on a CUDA device, by path and shape: `python -m engine.lab.tables.kernels_cuda`.

Prints the JSON that `kernels_cpu` prints for a CPU. Bfloat16, 32 query and 8 kv heads, 128 wide, random pages
of 64 tokens in random order; graphs of calls over disjoint inputs, so the L2 is cold; bytes are those a call must read,
`share` is of the bandwidth of a copy in the same run. `select` is what choosing
adds before reading; `dense` the faster of `paged`, which reads pages, and `sdpa`, which does not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine import forms
from engine.devices._base import LENS, WANTED, WINDOW, Batch, Reader
from engine.devices._plain import PlainReader
from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.kernels._cuda.operators import ListReader
from engine.kernels._cuda.pool import PagedPool, cold_code
from engine.lab.tables import latent_cuda
from engine.lab.tables.timing import copy_bandwidth, replayed, sets_for
from engine.latent.shape import SHAPES

TOKENS, KEPT = 64, 0.25
SHAPE = KVGeometry(1, 8, 32, 128, TOKENS, TOKENS, 1, dtype="bfloat16")
KEEP = Keep(KEPT, sink_tokens=TOKENS, window_tokens=TOKENS, block_tokens=TOKENS)
MOST_PAGES = 2 << 20
ENCODED = 4096
FORMS = ("hot", "cold_int8", "cold_fp8", "cold_int4", "lowrank")
Row = dict[str, object]


def pool_of(blocks: int, form: str) -> PagedPool:
    """Random pages, all of one form: as many of those there are as were encoded, over and over."""
    pages, device = blocks * SHAPE.kv_heads, "cuda"
    size = 0 if form == "hot" else forms.get(form).page_bytes(SHAPE)
    pool = PagedPool.empty(
        SHAPE, blocks, pages if form == "hot" else 1, pages * size, device=device,
        forms=() if form == "hot" else (form,),
    )  # fmt: skip
    for part in pool.hot.split(1 << 14):  # type: ignore[no-untyped-call]
        part.normal_()
    pool.reps.normal_(std=TOKENS**-0.5)
    order = torch.randperm(pages, device=device).int().view(blocks, SHAPE.kv_heads)
    if form == "hot":
        pool.place.copy_(order)
        return pool
    k, v = torch.randn(2, min(pages, ENCODED), TOKENS, SHAPE.head_dim, device=device)
    encoded = pool.form(form).encode(SHAPE, k, v)
    for part in pool.data.view(pages, size).split(len(encoded)):  # type: ignore[no-untyped-call]
        part.copy_(encoded[: len(part)])
    pool.place.copy_(cold_code(form, order))
    return pool


def batches(keep: Keep, batch: int, context: int, count: int, device: str = "cuda") -> list[Batch]:
    """Disjoint sets of requests over one pool; context in whole blocks."""
    width = context // keep.block_tokens
    tables = torch.arange(count * batch * width, device=device).int().view(count, batch, width)
    made = []
    for table in tables:
        one = Batch(batch, width, table.device)
        one.table.copy_(table)
        one.numbers[LENS], one.numbers[WANTED] = context, keep.blocks_for(context)
        one.numbers[WINDOW] = keep.window_start(context)
        made.append(one)
    return made


def rows_of(batch: int, context: int, form: str, copy: float) -> Iterator[Row]:
    """One shape's rows, in the order of measuring."""
    whole = batch * context // TOKENS * SHAPE.kv_heads
    page = forms.get(form).page_bytes(SHAPE)
    count = min(sets_for(int(whole * page * KEPT)), max(1, MOST_PAGES // whole))
    pool = pool_of(count * batch * context // TOKENS, form)
    sets = batches(KEEP, batch, context, count)
    queries = [torch.randn(batch, SHAPE.q_heads, SHAPE.head_dim, device="cuda").bfloat16() for _ in sets]

    def row(path: str, kept: float, us: float, size: float) -> Row:
        rate = size / us * 1e6
        return {
            "path": path, "batch": batch, "context": context, "kept": kept, "form": form, "ms": us / 1e3,
            "gb_per_s": rate / 1e9, "share": rate / copy,
        }  # fmt: skip

    readers: dict[str, list[Reader]] = {
        "paged": [ListReader([pool], one, None) for one in sets[: max(1, -(-count // 4))]],
        "block": [ListReader([pool], one, KEEP) for one in sets],
    }
    dense = 0.0
    for path, kept in (("paged", 1.0), ("block", KEPT)):
        for reader, q in zip(readers[path], queries, strict=False):
            reader.select(0, q)
        us = timed([partial(r.attend, 0, q, None) for r, q in zip(readers[path], queries, strict=False)])
        yield row(path, kept, us, whole * page * kept)
        dense = us if path == "paged" else dense
    both = timed([partial(chosen_and_read, r, q) for r, q in zip(readers["block"], queries, strict=True)])
    yield row("select", KEPT, both - us, whole * 2 * SHAPE.head_dim)
    yield row("select+block", KEPT, both, whole * (page * KEPT + 2 * SHAPE.head_dim))
    generic = [PlainReader([pool], one, KEEP) for one in sets[:4]]
    us = timed([partial(chosen_and_read, r, q) for r, q in zip(generic, queries, strict=False)], least=2)
    yield row("generic", KEPT, us, whole * (page * KEPT + 2 * SHAPE.head_dim))
    if form == "hot":
        us = sdpa(pool, queries, batch, context)
        yield row("sdpa", 1.0, us, whole * page)
        dense = min(dense, us)
    yield row("dense", 1.0, dense, whole * page)


def chosen_and_read(reader: Reader, q: torch.Tensor) -> None:
    reader.select(0, q)
    reader.attend(0, q, None)


def timed(calls: Sequence[Callable[[], object]], least: int = 12) -> float:
    return replayed(calls, least=least, replays=7)


def sdpa(pool: PagedPool, queries: Sequence[torch.Tensor], batch: int, context: int) -> float:
    """Torch's attention over packed rows: the faster of its own grouping and of the group as rows."""
    size = batch * SHAPE.kv_heads * context * SHAPE.head_dim
    flat = pool.hot.view(-1)
    sets = max(1, len(flat) // (2 * size))
    packed = [flat[2 * i * size : 2 * (i + 1) * size].view(2, batch, SHAPE.kv_heads, context, -1) for i in range(sets)]
    some = list(zip(queries, packed, strict=False))
    attention = scaled_dot_product_attention
    grouped = [partial(attention, q[:, :, None], kv[0], kv[1], enable_gqa=True) for q, kv in some]
    folded = [partial(attention, q.view(batch, SHAPE.kv_heads, SHAPE.group, -1), kv[0], kv[1]) for q, kv in some]
    return min(timed(grouped), timed(folded))


@torch.inference_mode()
def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.lab.tables.kernels_cuda", description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 16384, 65536])
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=forms.names())
    parser.add_argument("--latent", nargs="*", default=list(latent_cuda.NAMES), choices=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=7, help="as for a CPU; here every time is of seven replays")
    asked = parser.parse_args(argv)
    if not torch.cuda.is_available():
        sys.stderr.write("no CUDA device is visible here\n")
        return 3
    copy, rows = copy_bandwidth(), []
    for context in asked.contexts:
        for batch in asked.batches:
            for form in asked.forms:
                rows += list(rows_of(batch, context, form, copy))
                torch.cuda.empty_cache()
                sys.stderr.write(f"{len(rows)}\n")
            for name in asked.latent:
                rows += list(latent_cuda.rows_of(name, batch, context, copy))
                torch.cuda.empty_cache()
                sys.stderr.write(f"{len(rows)}\n")
    found = {"device": torch.cuda.get_device_name(), "threads": 0, "copy_gb_per_s": copy / 1e9, "rows": rows}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
