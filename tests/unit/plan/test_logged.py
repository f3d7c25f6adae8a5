"""What a plan counts is what engines logged, with the deployment and the engine given as options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope.cli import run

CONFIGS = Path("samples/configs")
LOGGED: list[dict[str, Any]] = yaml.safe_load((CONFIGS / "logged.yaml").read_text())
WITHIN = 0.02


def counted(entry: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> float:
    argv = ["plan", str(CONFIGS / entry["config"]), "--context", str(entry["context"]), "--format", "json"]
    assert run([*argv, *entry["options"].split()]) == 0
    found = json.loads(capsys.readouterr().out)
    gpu = found["per_gpu"]
    if entry["measure"] == "full_layers":
        full = [layer for layer in found["layers"] if layer["kind"] == "full"]
        return float(sum(layer["bytes_per_token"] * layer["count"] for layer in full) * entry["context"])
    key = {
        "growing_per_token": "growing_bytes_per_token",
        "per_request": "request_bytes",
        "fixed_per_request": "state_bytes_per_request",
    }[entry["measure"]]
    return float(gpu[key])


@pytest.mark.parametrize("entry", LOGGED, ids=[entry["id"] for entry in LOGGED])
def test_the_count_is_within_two_per_cent_of_the_log(entry: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(entry, capsys) == pytest.approx(entry["real"], rel=WITHIN)


POOLS = [entry for entry in LOGGED if "pool" in entry]


@pytest.mark.parametrize("entry", POOLS, ids=[entry["id"] for entry in POOLS])
def test_as_many_requests_fit_as_the_engine_said(entry: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(CONFIGS / entry["config"]), "--context", str(entry["context"]), "--memory", entry["pool"]]
    assert run([*argv, *entry["options"].split(), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["per_gpu"]["max_concurrency"] == pytest.approx(entry["fits"], abs=0.01)


def test_rules_of_the_wrong_release_are_told_apart_by_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    """Windows of the newest vLLM reserve two steps: the figure of an older log is missed, and the note says why."""
    entry = next(entry for entry in LOGGED if entry["id"] == "gemma-4-26b-vllm-fp8")
    wrong = {**entry, "options": entry["options"].replace("vllm@0.20", "vllm")}
    assert counted(wrong, capsys) > 1.1 * entry["real"]
    argv = ["plan", str(CONFIGS / entry["config"]), "--context", str(entry["context"]), *wrong["options"].split()]
    assert run(argv) == 0
    assert "releases before 0.26" in capsys.readouterr().out


def test_slots_share_the_context_or_have_one_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Windows of a unified cache hold every slot's window and one micro-batch; else each slot has its own."""
    argv = ["plan", str(CONFIGS / "gemma-3-1b.json"), "--context", "8192", "--engine", "llama.cpp", "-np", "4"]
    row = 2 * 256 * 2
    pools = []
    for more in ([], ["--kv-unified"], ["--kv-unified", "--swa-full"]):
        assert run([*argv, *more, "--format", "json"]) == 0
        pools.append(json.loads(capsys.readouterr().out)["per_gpu"]["pool_bytes"])
    assert pools == [
        (4 * 4 * 8192 + 22 * 4 * 1024) * row,
        (4 * 8192 + 22 * (4 * 512 + 512)) * row,
        26 * 8192 * row,
    ]
