"""KV over several GPUs: `python -m pytest tests/gpu/test_shards.py`. One GPU runs the parts one after the other."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
GPUS = torch.cuda.device_count()
SHAPE = {"requests": 2, "context_tokens": 8192, "layers": 2}


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("name", ["contiguous", "round_robin"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_parts_on_one_gpu_merge_to_what_it_computes_whole(name: str, ranks: int, share: float) -> None:
    from engine.lab.shards import partitions
    from engine.lab.shards.cells import Cell
    from engine.lab.shards.check import alone, in_parts
    from engine.lab.shards.content import Content
    from engine.lab.shards.dealt import deal

    shape = Cell(name, **SHAPE, share=share).shape
    content = Content(shape, "drift", device="cuda")
    dealt = deal(partitions.get(name), shape, ranks)
    queries = content.asked()
    for part, whole in zip(in_parts(dealt, content, queries), alone(dealt, content, queries), strict=True):
        off = (part.double() - whole.double()).norm() / whole.double().norm()
        assert off <= 1e-2, f"off by {off:.1e}"


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_through_nccl_agree_with_one(ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs, there are {GPUS}")
    from engine.lab.shards.launch import Launcher

    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    cells = [
        {"partition": name, **SHAPE, "layers": max(2, ranks), "share": share, "steps": 3, "check": True}
        for name in ("by_head", "contiguous", "round_robin", "by_layer")
        for share in (0.25, 1.0)
    ]
    told: list[dict[str, object]] = []
    Launcher(ranks, "cuda", cells, lambda fact: told.append(dict(fact)), timeout_s=60).run()
    found = [json.loads(json.dumps(one["found"])) for one in told if "found" in one]
    assert len(found) == len(cells)
    for cell, one in zip(cells, found, strict=True):
        assert one["relative"] <= 1e-2, cell
        assert one["memory_balance"] <= 1.02, cell
        if cell["partition"] in ("contiguous", "round_robin"):
            assert one["bits_in_parts"], cell


def test_a_killed_rank_ends_the_others_within_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if GPUS < 2:
        pytest.skip("needs 2 GPUs")
    from engine.lab.shards.launch import Launcher, RankLostError
    from probes.ring_reader import RingReader

    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    cell = {"partition": "round_robin", **SHAPE, "steps": 3}
    told: list[Any] = []
    started: list[float] = []

    def hear(fact: Mapping[str, Any]) -> None:
        told.append(fact)
        if "found" in fact and not started:
            os.kill(told[0]["ready"]["pids"][1], signal.SIGKILL)
            started.append(time.monotonic())

    launcher = Launcher(2, "cuda", [cell, {**cell, "seconds": 60}], hear, timeout_s=60)
    with pytest.raises(RankLostError, match=r"rank 1 of 2 .* was killed by SIGKILL"):
        launcher.run()
    assert time.monotonic() - started[0] < 10
    for path in told[0]["ready"]["rings"]:
        assert RingReader(Path(path)).steps()
