"""Compare ways to launch on every shape: `python -m tests.bench.gpu_sweep`; `--compile i n` only compiles a share."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from time import perf_counter

import torch
import triton
import triton.language as tl

from engine.kernels._cuda.attend import Launch, attend
from engine.kernels._cuda.pool import PagedPool
from engine.kernels._cuda.select import Choice
from engine.kernels._cuda.worklist import WorkList
from engine.lab.tables.timing import copy_bandwidth, replayed, sets_for
from tests.bench.gpu_rivals import sdpa_folded, sdpa_grouped
from tests.bench.gpu_shapes import TOKENS, Arena, Set, make_sets
from tests.bench.gpu_variants import CHOICES, CUTS, MIXES, SCALE, alternating, attention, cut, selection

SHAPES = [(batch, context) for batch in (1, 8, 64) for context in (2048, 16384, 65536)]


@triton.jit
def nothing(out):
    tl.store(out + tl.program_id(0), 1.0)


def page_bytes(batch: int, context: int, share: float) -> int:
    return int(batch * context * 8 * 128 * 4 * share)


def least_for(bytes_read: int) -> int:
    """Calls in a graph, so that one replay takes about two milliseconds."""
    return max(2, min(32, int(2e-3 / (bytes_read / 4e12 + 8e-6))))


def sweep_shape(arena: Arena, batch: int, context: int, copy: float) -> dict[str, object]:
    size = page_bytes(batch, context, 0.25)
    count = sets_for(size)
    pool = arena.pool(count * batch * context // TOKENS)
    sets = make_sets(pool, batch, context, count)
    found: dict[str, object] = {}
    for call in selection(sets, pool, CHOICES[0]):
        call()
    for dense in (False, True):
        work = sets[0].dense if dense else sets[0].sparse
        bytes_read = work.bytes_read(pool)
        for warps, stages, programs, evict in CUTS:
            launch = cut(work, warps, stages, programs, evict=evict)
            some = sets if not dense else sets[: max(1, -(-len(sets) // 4))]
            us = replayed(attention(some, pool, launch, dense=dense), least=least_for(bytes_read), replays=5)
            name = f"{'dense' if dense else 'sparse'} w{warps} s{stages} p{programs} {evict}({launch.parts})"
            found[name] = (us, bytes_read / us / 1e-6 / copy)
    found.update(chains(sets, pool, cut(sets[0].sparse, 2, 3, 264)))
    if (batch, context) == (8, 65536):
        found.update(ordered(arena, batch, context, count))
    packed = arena.packed(batch, context, max(1, count // 4))
    for name, rival in (("sdpa grouped", sdpa_grouped), ("sdpa folded", sdpa_folded)):
        calls = [lambda s=s, kv=kv, f=rival: f(s.q, *kv) for s, kv in zip(sets, packed, strict=False)]
        found[name] = replayed(calls, least=least_for(4 * size), replays=5)
    return found


def chains(sets: list[Set], pool: PagedPool, launch: Launch) -> dict[str, object]:
    """Selection before attention, less attention alone: what it costs when its input is not in the L2."""
    alone = attention(sets, pool, launch, dense=False)
    base = replayed(alone, replays=5)
    found: dict[str, object] = {}
    for how in CHOICES:
        both = replayed(alternating(selection(sets, pool, how), alone), replays=5)
        found[f"select u{how.units} w{how.warps}"] = both - base
        found[f"chain u{how.units} w{how.warps}"] = both
    return found


def ordered(arena: Arena, batch: int, context: int, count: int) -> dict[str, object]:
    """The same with blocks in the order of memory."""
    pool = arena.pool(count * batch * context // TOKENS)
    sets = make_sets(pool, batch, context, count, shuffled=False)
    return {"dense in order": replayed(attention(sets, pool, cut(sets[0].dense, 2, 3, 264), dense=True), least=4)}


def sweep_mixed(arena: Arena, batch: int, context: int) -> dict[str, object]:
    """Everything read, three quarters of the pages int8."""
    blocks = batch * context // TOKENS
    count = 4
    pool = arena.pool(count * blocks)
    hot = make_sets(arena.pool(count * blocks), batch, context, count)
    arena.freeze(pool, "cold_int8", 0.75)
    sets = make_sets(pool, batch, context, count)
    found: dict[str, object] = {"bytes": [sets[0].dense.bytes_read(pool), hot[0].dense.bytes_read(pool)]}
    for warps, stages, cold_stages, programs in MIXES:
        launch = cut(sets[0].dense, warps, stages, programs, cold_stages)
        found[f"mixed w{warps} s{stages} c{cold_stages} p{programs}"] = replayed(
            attention(sets, pool, launch, dense=True), replays=5
        )
    found["all hot"] = replayed(attention(hot, arena.pool(count * blocks), Launch(4, 2, 3), dense=True), replays=5)
    return found


def compile_share(index: int, of: int) -> None:
    """Compile every `of`-th variant, into Triton's cache on disk."""
    arena = Arena(8 * 1024)
    jobs: list[object] = [Launch(2, *cut[:2], evict=cut[2]) for cut in sorted({(c[0], c[1], c[3]) for c in CUTS})]
    jobs += [("cold", Launch(2, *mix)) for mix in sorted({mix[:3] for mix in MIXES})]
    jobs += [(how, context) for how in CHOICES for context in (2048, 16384, 65536)]
    for job in jobs[index::of]:
        if isinstance(job, tuple) and isinstance(job[0], Choice):
            pool = arena.pool(job[1] // TOKENS)
            made = make_sets(pool, 1, job[1], 1)
            selection(made, pool, job[0])[0]()
            continue
        pool = arena.pool(32)
        if isinstance(job, tuple):
            arena.freeze(pool, "cold_int8", 0.75)
        launch = job[1] if isinstance(job, tuple) else job
        work = WorkList(pool.geometry, 1, 32, "cuda", pool.forms)
        q = torch.zeros(1, 32, 128, dtype=torch.bfloat16, device="cuda")
        attend(q, q.clone(), pool, work, SCALE, launch)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", nargs=2, type=int, metavar=("I", "N"))
    options = parser.parse_args()
    if options.compile:
        compile_share(*options.compile)
        return
    copy = copy_bandwidth()
    arena = Arena(64 * 65536 // TOKENS * 8)
    rows: dict[str, object] = {"copy": copy}
    nil = torch.zeros(1024, device="cuda")
    rows["floor"] = [replayed([lambda n=n: nothing[(n,)](nil)] * 64) for n in (1, 264)]
    out = Path(os.environ.get("OUT", ".")) / "sweep.json"
    for batch, context in SHAPES:
        began = perf_counter()
        rows[f"{batch}x{context}"] = sweep_shape(arena, batch, context, copy)
        print(f"{batch}x{context}: {perf_counter() - began:.0f} s", flush=True)
        out.write_text(json.dumps(rows))
    rows["mixed 8x16384"] = sweep_mixed(arena, 8, 16384)
    out.write_text(json.dumps(rows))
    for name, row in rows.items():
        if isinstance(row, dict):
            brief = {k: round(v[0] if isinstance(v, tuple | list) else v, 1) for k, v in row.items()}
            for kind in ("sparse", "dense", "select", "chain", "sdpa", "mixed", "all"):
                mine = sorted((v, k) for k, v in brief.items() if k.startswith(kind))
                print(name, kind, *(f"{k.removeprefix(kind)}={v}" for v, k in mine[:5]), sep=" | ")
        else:
            print(name, row)


if __name__ == "__main__":
    main()
