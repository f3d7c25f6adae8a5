"""The matrix on a real engine, as far as CI has time for: one fault named, one healthy engine left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kvscope.cli import run


def test_the_quick_matrix_names_its_fault_and_raises_no_alarm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    assert run(["bench", "diagnosis", "--quick", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    values = {one["name"]: one["value"] for one in found["quantities"]}
    assert (values["top1_clear"], values["false_alarms"]) == (1.0, 0.0), found["warns"]
