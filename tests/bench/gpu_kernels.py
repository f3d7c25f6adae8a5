"""Attention on one CUDA device: `python -m tests.bench.gpu_kernels`; writes gpu_kernels.json to $OUT, or here.

Bfloat16, 32 query and 8 kv heads, 128 wide, blocks of 64 tokens in random order. Every number is the median over
replays of a CUDA graph whose calls follow each other over disjoint inputs, so the L2 is cold; launches are included.
Bytes are counted from the work list; `share` is of the bandwidth of a copy measured in the same run. Selection is what
it adds when it runs before attention.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from engine.kernels._cuda.pool import PagedPool, Statistics
from engine.kernels._cuda.tuning import choice_for, launch_for, processors
from engine.kernels._cuda.worklist import share_out
from engine.lab.tables.timing import copy_bandwidth, replayed, sets_for
from tests.bench.gpu_rivals import choose_blocks, gathered, sdpa_folded, sdpa_grouped
from tests.bench.gpu_shapes import KEPT, TOKENS, Arena, Set, make_sets
from tests.bench.gpu_sweep import SHAPES, least_for, page_bytes
from tests.bench.gpu_variants import Calls, alternating, attention, longest, selection

Row = dict[str, float]


def ours(sets: list[Set], pool: PagedPool) -> Row:
    """Dense, sparse, and selection before it, in microseconds."""
    how = choice_for(sets[0].dense.pairs, sets[0].table.shape[1] * pool.geometry.subs_per_block)
    for call in selection(sets, pool, how):
        call()
    row: Row = {}
    for kind in ("dense", "sparse"):
        work = getattr(sets[0], kind)
        size = work.bytes_read(pool)
        launch = launch_for(work.pairs, longest(work), processors(), pool.forms)
        some = sets if kind == "sparse" else sets[: max(1, -(-len(sets) // 4))]
        calls = attention(some, pool, launch, dense=kind == "dense")
        row |= {f"{kind}_us": replayed(calls, least=least_for(size)), f"{kind}_bytes": size}
    both = replayed(alternating(selection(sets, pool, how), calls), least=least_for(size))
    return row | {"select_us": both - row["sparse_us"], "both_us": both}


def rivals(sets: list[Set], pool: PagedPool, arena: Arena, batch: int, context: int) -> Row:
    """Torch's attention over packed rows, and the generic path: choose, gather and attend by plain operators."""
    size = page_bytes(batch, context, 1.0)
    packed = arena.packed(batch, context, max(1, len(sets) // 4))
    row: Row = {}
    for name, rival in (("sdpa_grouped_us", sdpa_grouped), ("sdpa_folded_us", sdpa_folded)):
        calls: Calls = [lambda s=s, kv=kv, f=rival: f(s.q, *kv) for s, kv in zip(sets, packed, strict=False)]
        row[name] = replayed(calls, least=least_for(size))
    some, kept = sets[: min(4, len(sets))], sets[0].chooser.keep.blocks_for(context)
    pages = [choose_blocks(s.q, pool, s.table, kept) for s in some]
    gather: Calls = [lambda s=s, p=p: gathered(s.q, pool, p) for s, p in zip(some, pages, strict=True)]
    choose: Calls = [lambda s=s: choose_blocks(s.q, pool, s.table, kept) for s in some]
    row["generic_us"] = replayed(gather, least=2, replays=5)
    row["torch_select_us"] = replayed(choose, least=2, replays=5)
    row["sdpa_us"] = min(row["sdpa_grouped_us"], row["sdpa_folded_us"])
    return row


def statistics(arena: Arena, batch: int, context: int) -> Row:
    """Selection by richer statistics, and by those of every 16 tokens."""
    row: Row = {}
    kinds: tuple[tuple[Statistics, int], ...] = (("mean", 64), ("mean", 16), ("bounds", 64), ("bounds", 16))
    for kind, length in kinds:
        count = sets_for(page_bytes(batch, context, KEPT))
        pool = arena.pool(count * batch * context // TOKENS, kind, length)
        row[f"{kind} per {length}"] = ours(make_sets(pool, batch, context, count), pool)["select_us"]
    return row


def mixed(arena: Arena, batch: int, context: int, count: int = 4) -> Row:
    """Three quarters of the pages int8: all read, and a quarter of the blocks chosen."""
    pool = arena.pool(count * batch * context // TOKENS)
    plain = ours(make_sets(pool, batch, context, count), pool)
    arena.freeze(pool, "cold_int8", 0.75)
    row = ours(make_sets(pool, batch, context, count), pool)
    row |= {"dense_ratio": row["dense_us"] / plain["dense_us"], "both_ratio": row["both_us"] / plain["both_us"]}
    return row | {f"bfloat16_{name}": value for name, value in plain.items()}


def ragged(arena: Arena, batch: int = 16) -> Row:
    """Requests of 1K to 64K tokens: equal parts to each, against parts by length."""
    lens = [1024 << (i % 7) for i in range(batch)]
    pool = arena.pool(4 * batch * 65536 // TOKENS // 4)
    made = make_sets(pool, batch, 65536, 1)
    for one in made:
        one.lens.copy_(torch.tensor(lens))
        one.dense.everything(pool, one.table, one.lens)
    launch = launch_for(batch * 8, 1024, processors())
    rows = share_out(made[0].dense.counts[0].tolist(), 2 * processors(), 2 * processors()).cuda()
    size = made[0].dense.bytes_read(pool)
    equal = replayed(attention(made, pool, launch, dense=True))
    planned = replayed(attention(made, pool, launch, dense=True, plan=rows))
    return {"equal_us": equal, "planned_us": planned, "bytes": size}


def show(rows: dict[str, Row], copy: float) -> None:
    print(f"\ncopy {copy / 1e12:.2f} TB/s")
    print(
        "| batch x context | dense us (share) | SDPA us | sparse us (share) | select us (share) | generic us | x SDPA |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        if "x" in name and "sdpa_us" in row:
            dense, sparse = (row[f"{kind}_bytes"] / row[f"{kind}_us"] * 1e6 / copy for kind in ("dense", "sparse"))
            print(
                f"| {name} | {row['dense_us']:.1f} ({dense:.0%}) | {row['sdpa_us']:.1f} "
                f"| {row['sparse_us']:.1f} ({sparse:.0%}) | {row['select_us']:.1f} "
                f"({row['select_us'] / row['sparse_us']:.0%}) | {row['torch_select_us'] + row['generic_us']:.0f} "
                f"| {row['sdpa_us'] / row['both_us']:.2f} |"
            )
        else:
            print(name, json.dumps({key: round(value, 2) for key, value in row.items()}))


def main() -> None:
    torch.manual_seed(0)
    copy = copy_bandwidth()
    arena = Arena(64 * 65536 // TOKENS * 8)
    rows: dict[str, Row] = {}
    for batch, context in SHAPES:
        count = sets_for(page_bytes(batch, context, KEPT))
        pool = arena.pool(count * batch * context // TOKENS)
        sets = make_sets(pool, batch, context, count)
        rows[f"{batch}x{context}"] = ours(sets, pool) | rivals(sets, pool, arena, batch, context)
    for context in (16384, 65536):
        rows[f"statistics 8x{context}"] = statistics(arena, 8, context)
    for context in (16384, 65536):
        rows[f"int8 8x{context}"] = mixed(arena, 8, context, 4 if context < 65536 else 2)
    rows["ragged"] = ragged(arena)
    device = {"copy_bytes_per_s": copy, "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    out = Path(os.environ.get("OUT", ".")) / "gpu_kernels.json"
    out.write_text(json.dumps({"device": device, "rows": rows}, indent=1))
    show(rows, copy)


if __name__ == "__main__":
    main()
