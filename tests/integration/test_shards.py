"""Ranks as processes, talking by gloo: their results, their balance, and what is left when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
NAMES = ("by_head", "by_layer", "contiguous", "round_robin")
SHAPE = {"requests": 2, "context_tokens": 2048, "kv_heads": 4, "head_dim": 32, "layers": 4, "steps": 2}
BALANCE = {"requests": 8, "context_tokens": 65536, "chosen": 64, "kv_heads": 8, "head_dim": 32, "layers": 1}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def told_by(ranks: int, cells: list[dict[str, Any]]) -> list[Any]:
    from engine.lab.shards.launch import Launcher

    told: list[Any] = []
    Launcher(ranks, "cpu", cells, told.append).run()
    return told


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_compute_what_one_does_and_share_evenly(ranks: int) -> None:
    cells = [{"partition": name, **SHAPE, "check": True} for name in NAMES]
    spread = [
        {"partition": "round_robin", **BALANCE, "keys": keys, "pages": False, "head_dim": 32}
        for keys in ("drift", "random")
    ]
    found, too_few = {}, {"partition": "by_head", **SHAPE, "kv_heads": 1}
    _, refused, *facts = told_by(ranks, [too_few, *cells, *spread])
    assert refused["found"]["error"].startswith(f"by_head: 1 kv heads cannot be spread over {ranks} ranks")
    for fact in facts:
        found[fact["cell"]["partition"], fact["cell"]["pages"], fact["cell"]["keys"]] = fact["found"]
    for name in NAMES:
        one = found[name, True, "drift"]
        assert one["memory_balance"] <= 1.02, name
        assert one["bits_in_parts"], name
        assert one["bits"] if name.startswith("by_") else one["largest"] <= 1e-5, name
        assert all(sent > 0 for sent in one["by_rank"]["sent_bytes"]), name
    for keys in ("drift", "random"):
        selected = found["round_robin", False, keys]["selected"]
        assert selected["choice"] <= {2: 1.10, 4: 1.25}[ranks], keys
        assert selected["batch"] <= 1.05, keys


@pytest.mark.parametrize(
    ("how", "says", "ranks"), [(signal.SIGKILL, "was killed by SIGKILL", 4), (signal.SIGSTOP, "did not answer", 2)]
)
def test_a_rank_lost_in_the_middle_ends_the_others_and_leaves_all_recorders(
    how: signal.Signals, says: str, ranks: int
) -> None:
    from engine.lab.shards.launch import Launcher, RankLostError
    from kvscope.sources import open_target

    told: list[Any] = []
    lost_at: list[float] = []

    def hear(fact: Mapping[str, Any]) -> None:
        told.append(fact)
        if "found" in fact:
            os.kill(told[0]["ready"]["pids"][1], how)
            lost_at.append(time.monotonic())

    cell = {"partition": "round_robin", **SHAPE}
    launcher = Launcher(ranks, "cpu", [cell, {**cell, "seconds": 60}], hear, timeout_s=3)
    with pytest.raises(RankLostError) as lost:
        launcher.run()
    assert time.monotonic() - lost_at[0] < 10
    assert f"rank 1 of {ranks} (pid {told[0]['ready']['pids'][1]}) {says}" in str(lost.value)
    assert "\n" not in str(lost.value)
    source = open_target(",".join(told[0]["ready"]["rings"]))
    poll = source.poll()
    source.close()
    assert poll.ended
    seen = {dict(one.labels).get("rank") for one in poll.samples if one.metric == "rank.selected_blocks"}
    assert seen == {str(rank) for rank in range(ranks)}
    for pid in told[0]["ready"]["pids"]:
        assert not Path(f"/proc/{pid}").exists()


def test_the_bench_goes_on_where_it_stopped_and_diagnose_reads_its_ranks(folder: Path) -> None:
    log, out = folder / "log.jsonl", folder / "out.json"
    command = [
        *(sys.executable, "-m", "kvscope", "bench", "shards", "--ranks", "2", "--sizes", "1x1K", "--steps", "3"),
        *("--no-balance", "--log", str(log), "--format", "json", "-o", str(out)),
    ]
    first = subprocess.run([*command, "--partitions", "round_robin"], cwd=ROOT, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    assert len(log.read_text().splitlines()[1:]) == 2, "a line each, after what is measured"
    with log.open("a") as file:
        file.write('{"ranks": 2, "cut')
    log.write_text(log.read_text().rpartition("\n")[0] + "\n")
    again = subprocess.run([*command, "--partitions", "round_robin,by_head"], cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert len(log.read_text().splitlines()[1:]) == 3
    found = json.loads(out.read_text())
    assert [one["cell"]["partition"] for one in found["cells"]] == ["contiguous", "round_robin", "by_head"]
    assert {table["title"].split(",")[0] for table in found["tables"]} >= {"Step time"}
    rings = sorted(folder.glob("engine-*.ring"), key=lambda path: path.stat().st_mtime)[-2:]
    command = [sys.executable, "-m", "kvscope", "diagnose", ",".join(map(str, rings)), "--format", "json"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(told.stdout)
    assert report["source"]["target"] == "rank 0,rank 1"
