"""The matrix on a real engine, as far as CI has time for: one fault named, one healthy engine left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kvscope.bench import _matrix_run
from kvscope.cli import run
from kvscope.laboratory import Length

ENOUGH = Length(steps=120, least_s=1.5, most_s=60.0)
"""A fault this clear shows in a third of the steps that a matrix takes. However busy the machine, no fewer count."""


def test_the_quick_matrix_names_its_fault_and_raises_no_alarm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(_matrix_run, "MEASURED", ENOUGH)
    assert run(["bench", "diagnosis", "--quick", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    values = {one["name"]: one["value"] for one in found["quantities"]}
    assert (values["top1_clear"], values["false_alarms"]) == (1.0, 0.0), found["warns"]
