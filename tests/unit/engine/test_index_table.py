"""The device's table of choosing and collecting, without a device: kernels interpreted, parts by the host's clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]
CODE = """
from time import perf_counter
from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.lab.tables.index_cuda import collected, inputs, rows_of
from engine.devices._plain import PlainReader
import torch

shape = KVGeometry(1, 2, 8, 32, 16, 16, 1, dtype="bfloat16")
keep = Keep(0.25, sink_tokens=16, window_tokens=16, block_tokens=16)

def clock(calls, least):
    began = perf_counter()
    for call in calls:
        call()
    return (perf_counter() - began) / len(calls) * 1e6

rows = list(rows_of(shape, 2, 256, keep, "cpu", clock))
assert [(row["kernels"], row["order"]) for row in rows] == [
    ("block", "memory"), ("generic", "memory"), ("block", "random"), ("generic", "random")]
assert all(row["attend"] > 0 for row in rows if row["kernels"] == "block")
assert all(row["gather"] > 0 for row in rows if row["kernels"] == "generic")

pool, (batch, _) = inputs(shape, 2, 256, keep, 2, "cpu")
order = torch.randperm(pool.place.numel()).int().view_as(pool.place)
pool.place.copy_(order)
reader = PlainReader([pool], batch, keep)
reader.select(0, torch.randn(2, 8, 32).bfloat16())
k, v, _ = collected(reader)
assert reader.spot.shape == (2, 2, keep.blocks_for(256))
for request in range(2):
    for head in range(2):
        page = order[batch.table[request, reader.spot[request, head, 1]].long(), head]
        assert torch.equal(k[request, head, 1], pool.hot[page, 0])
        assert torch.equal(v[request, head, 1], pool.hot[page, 1])
print("measured")
"""


def test_both_kernels_are_timed_in_both_orders_and_gather_copies_the_chosen_pages() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "measured", done.stderr[-2000:]


def test_without_a_device_it_says_so_in_one_line() -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "engine.lab.tables.index_cuda", "--contexts", "2048"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (3, "no CUDA device is visible here")
