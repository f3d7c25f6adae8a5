"""The device's operators of sharding without a device: interpreted against plain torch, and compiled for sm_90."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).resolve().parents[3]
INTERPRETED = """
import torch
from engine.lab.shards import candidates, partitions
from engine.lab.shards.content import Content
from engine.lab.shards.dealt import deal
from engine.lab.shards.device import Device, on_device
from engine.lab.shards.held import hold
from engine.lab.shards.operators import Plain
from engine.lab.shards.shape import Shape

def results(make, ready, dealt, content, q):
    shape, wanted = dealt.shape, dealt.shape.wanted_in(0)
    own = q.view(len(q), shape.kv_heads, shape.group, shape.head_dim)
    helds = [ready(hold(dealt, content, rank, 0, pages=True)) for rank in range(dealt.ranks)]
    all_operators = [make() for _ in helds]
    keys = [one.keys(own, held) for one, held in zip(all_operators, helds)]
    edge = candidates.edge(torch.cat([candidates.best(one, wanted) for one in keys], -1), wanted)
    if not shape.chooses(0):
        edge = None
    parts = torch.stack([one.part(own, held, edge).clone() for one, held in zip(all_operators, helds)])
    read = [held.read.long() for held in helds]
    return all_operators[0].merge(parts, own), read, parts

for share in (0.25, 1.0):
    for name in ("contiguous", "round_robin"):
        for ranks in (2, 3):
            shape = Shape(1, 2, 2, 2, 32, 21, 16, share=share)
            content = Content(shape, "drift")
            dealt, q = deal(partitions.get(name), shape, ranks), content.queries(0)
            plain, read, _ = results(Plain, lambda held: held, dealt, content, q)
            device, seen, _ = results(Device, lambda held: on_device(held, shape, 0, ranks), dealt, content, q)
            assert (plain - device).abs().max() < 1e-5, (name, ranks, share)
            assert all(torch.equal(a, b) for a, b in zip(read, seen)), (name, ranks, share)
            assert (sum(read) == shape.wanted_in(0)).all()
print("same")
"""


def test_interpreted_parts_and_their_merge_are_those_of_plain_torch() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True)
    assert ran.stdout.strip() == "same", ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["score_keys", "list_above", "log_sums", "merge_ranks"])
def test_every_kernel_compiles_for_hopper_within_its_shared_memory(name: str) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from engine.lab.shards import _device_kernels

    kernel: Any = getattr(_device_kernels, name)
    constants = {
        "GROUP": 4, "ROWS": 16, "DIM": 128, "UNITS": 64, "UPCAST": False, "PRECISION": "tf32", "CAP": 4096,
        "LANES": 4, "RANKS": 2,
    }  # fmt: skip
    pointers = {
        "q": "*bf16", "means": "*bf16", "keys": "*i64", "edge": "*i64", "pinned": "*i8", "weight": "*fp32",
        "parts": "*fp32" if name == "merge_ranks" else "i32",
        "out": "*bf16" if name == "merge_ranks" else "*fp32",
    }  # fmt: skip
    integers = ("n", "heads", "blocks", "capacity", "rows", "stride")
    types = {arg: pointers.get(arg, "i32" if arg in integers else "*i32") for arg in kernel.arg_names}
    fixed = {arg: value for arg, value in constants.items() if arg in types}
    source = ASTSource(fn=kernel, signature=types | dict.fromkeys(fixed, "constexpr"), constexprs=fixed)
    made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "enable_fp_fusion": True})
    assert "cubin" in made.asm
    assert made.metadata.shared <= 227 * 1024
