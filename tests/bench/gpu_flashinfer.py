"""FlashInfer's paged decode beside ours: `python -m tests.bench.gpu_flashinfer [WAY|BATCHxCONTEXT...]`.

The same keys and values lie in the same memory in its own layout, pages of 64 tokens with all heads, in random order;
planning on the host is left out of its times. `--build [WAY...]`, to be run before, only compiles its kernels.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from importlib.util import find_spec
from multiprocessing import Process
from pathlib import Path
from typing import Any

import torch

from engine.kernels._cuda.tuning import launch_for, processors
from engine.lab.tables.timing import copy_bandwidth, replayed, sets_for
from tests.bench.gpu_rivals import sdpa_folded, sdpa_grouped
from tests.bench.gpu_shapes import TOKENS, Arena, Set, make_sets
from tests.bench.gpu_sweep import least_for, page_bytes
from tests.bench.gpu_variants import Calls, attention, longest

SHAPES = ((1, 2048), (1, 16384), (1, 65536), (8, 2048), (8, 16384), (8, 65536), (64, 2048), (64, 16384))
# Its kernels: products on plain cores, and two on tensor cores.
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"use_tensor_cores": False},
    "fa2": {"use_tensor_cores": True, "backend": "fa2"},
    "fa3": {"use_tensor_cores": True, "backend": "fa3"},
}


def planned(way: str, space: torch.Tensor, order: torch.Tensor) -> Any:
    """A wrapper planned for requests of full blocks, which `order` int32 [batch, blocks] names."""
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    batch, blocks = order.shape
    starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda") * blocks
    full = torch.full((batch,), TOKENS, dtype=torch.int32, device="cuda")
    names = order.flatten().contiguous()
    wrapper = BatchDecodeWithPagedKVCacheWrapper(
        space, "HND", use_cuda_graph=True, paged_kv_indptr_buffer=starts.clone(), paged_kv_indices_buffer=names.clone(),
        paged_kv_last_page_len_buffer=full.clone(), **WAYS[way],
    )  # fmt: skip
    wrapper.plan(
        starts, names, full, 32, 8, 128, TOKENS, q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16
    )  # fmt: skip
    return wrapper


def workspace() -> torch.Tensor:
    return torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")


def build(way: str) -> None:
    order = torch.arange(4, dtype=torch.int32, device="cuda").view(1, 4)
    cache = torch.zeros(4, 2, 8, TOKENS, 128, dtype=torch.bfloat16, device="cuda")
    planned(way, workspace(), order).run(torch.zeros(1, 32, 128, dtype=torch.bfloat16, device="cuda"), cache)


def gathered(q: torch.Tensor, cache: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """float32 [requests, 32, 128] by plain operators over the pages `order` names."""
    held = cache[order.long()].transpose(1, 2)
    k, v = (held[:, part].permute(0, 2, 1, 3, 4).flatten(2, 3).float() for part in range(2))
    return sdpa_folded(q.float(), k, v).reshape(q.shape)


def theirs(way: str, sets: list[Set], cache: torch.Tensor, size: int) -> float:
    space = workspace()
    wrappers = [planned(way, space, one.table) for one in sets]
    calls: Calls = [partial(w.run, s.q, cache, out=s.out) for s, w in zip(sets, wrappers, strict=True)]
    calls[0]()
    if sets[0].table.numel() <= 1 << 11:
        expected = gathered(sets[0].q, cache, sets[0].table)
        error = float((sets[0].out.float() - expected).norm() / expected.norm())
        if not error < 1e-2:
            raise RuntimeError(f"its result is off by {error:.1e}")
    return replayed(calls, least=least_for(size))


def measure(arena: Arena, batch: int, context: int, ways: list[str]) -> dict[str, float]:
    """Microseconds of ours, of torch's attention over packed rows, and of each of its kernels, all pages read."""
    size, blocks = page_bytes(batch, context, 1.0), context // TOKENS
    count = sets_for(size)
    pool = arena.pool(count * batch * blocks)
    sets, packed = make_sets(pool, batch, context, count), arena.packed(batch, context, count)
    cache = pool.hot.view(-1, 2, 8, TOKENS, 128)
    launch = launch_for(batch * 8, longest(sets[0].dense), processors())
    row = {"ours": replayed(attention(sets, pool, launch, dense=True), least=least_for(size))}
    for way in ways:
        try:
            row[way] = theirs(way, sets, cache, size)
        except RuntimeError as error:
            print(f"{way} failed at {batch}x{context}: {error}", flush=True)
    rivals: list[Calls] = [
        [partial(f, s.q, *kv) for s, kv in zip(sets, packed, strict=True)] for f in (sdpa_grouped, sdpa_folded)
    ]
    return row | {"sdpa": min(replayed(calls, least=least_for(size)) for calls in rivals)}


def main() -> None:
    if find_spec("flashinfer") is None:
        print("gpu_flashinfer: flashinfer is not installed, nothing was measured")
        return
    ways = [word for word in sys.argv[1:] if word in WAYS] or list(WAYS)
    if sys.argv[1:2] == ["--build"]:
        jobs = [Process(target=build, args=(way,)) for way in ways]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        raise SystemExit(max(abs(job.exitcode or 0) for job in jobs))
    import flashinfer

    shapes = [tuple(map(int, word.split("x"))) for word in sys.argv[1:] if word not in WAYS] or SHAPES
    print(f"flashinfer {flashinfer.__version__}, copy {copy_bandwidth() / 1e12:.2f} TB/s, microseconds")
    arena = Arena(64 * 16384 // TOKENS * 8)
    rows: dict[str, dict[str, float]] = {}
    for batch, context in shapes:
        row = rows[f"{batch}x{context}"] = measure(arena, batch, context, ways)
        print(batch, context, json.dumps({name: round(us, 1) for name, us in row.items()}), flush=True)
        (Path(os.environ.get("OUT", ".")) / "flashinfer.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
