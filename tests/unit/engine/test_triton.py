"""The Triton kernel, without a GPU: interpreted against the oracle in a process of its own, and compiled for sm_90."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]

INTERPRETED = """
import torch
from engine.kernels import Keep, get
from engine.kernels.oracle import Oracle
from engine.kernels.triton_block import splits_for
from engine.forms.cold_int8 import CODE as INT8
from engine.geometry import KVGeometry
from tests.unit.engine.test_kernels import filled

lens = [150, 1, 64, 513]
assert splits_for(8, 17) == 8
for geometry in (KVGeometry(1, 2, 4, 64), KVGeometry(1, 1, 20, 32, block_tokens=16, rep_tokens=16)):
    cache, batch = filled(geometry, lens, seed=7, cold=(INT8,))
    q = torch.randn(len(lens), geometry.q_heads, geometry.head_dim)
    kernels, oracle = get("triton_block"), Oracle(torch.float64)
    keep = Keep(0.3, sink_tokens=16, window_tokens=40, block_tokens=geometry.block_tokens)
    chosen = kernels.select(q, 0, cache, batch, keep)
    for selection in (chosen, None):
        out = kernels.attend(q, 0, cache, batch, selection, 0.125)
        expected = oracle.attend(q, 0, cache, batch, selection, 0.125)
        torch.testing.assert_close(out, expected, atol=2e-5, rtol=1e-4)
        assert (kernels.traffic.hot_pages, kernels.traffic.cold_pages) == (
            oracle.traffic.hot_pages, oracle.traffic.cold_pages)
        assert abs(kernels.traffic.entries_read - oracle.traffic.entries_read) < 1e-9
print("agrees")
"""


@pytest.mark.slow
def test_the_interpreted_kernel_agrees_with_the_oracle() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERPRETED],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "agrees", done.stderr[-2000:]


ATTEND_TYPES = {
    "table": "*i32", "lens": "*i32", "index": "*i32", "count": "*i32", "offset": "*i64", "form": "*u8", "cold": "*i8",
    "scales": "*fp32", "part": "*fp32", "peak": "*fp32", "total": "*fp32", "scale": "fp32", "heads": "i32",
    "table_stride": "i32", "index_stride": "i32",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bf16", "fp32"])
@pytest.mark.parametrize("everything", [True, False])
def test_the_kernels_compile_for_hopper_within_its_shared_memory(kind: str, everything: bool) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from engine.kernels._triton import attend_part, merge_parts

    shape = {"GROUP": 4, "ROWS": 16, "DIM": 128, "SPLITS": 8}
    constants = shape | {
        "TOKENS": 64, "HOT_BYTES": 2 if kind == "bf16" else 4, "EVERYTHING": everything, "UPCAST": False,
        "PRECISION": "tf32" if kind == "bf16" else "ieee",
    }  # fmt: skip
    signature = {"q": f"*{kind}", "hot": f"*{kind}"} | ATTEND_TYPES
    merged = {"part": "*fp32", "peak": "*fp32", "total": "*fp32", "out": f"*{kind}"}
    for kernel, types, fixed in ((attend_part, signature, constants), (merge_parts, merged, shape)):
        ordered = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=ordered, constexprs=fixed)
        made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "enable_fp_fusion": True})
        assert "cubin" in made.asm
        assert made.metadata.shared <= 227 * 1024
