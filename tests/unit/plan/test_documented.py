"""docs/plan.md lists every config, what it was checked against, and every engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope.plan import engines, families, geometry

CONFIGS = Path("samples/configs")
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))
DOCS = Path("docs/plan.md").read_text()
ROWS = {row.split("|")[1].strip(): row for row in DOCS.splitlines() if row.startswith("| ")}
LOGGED = {entry["config"].removesuffix(".json") for entry in yaml.safe_load((CONFIGS / "logged.yaml").read_text())}
HELD = yaml.safe_load((CONFIGS / "held.yaml").read_text())
PUBLISHED = {
    "bamba-9b": 9.78, "deepseek-r1": 671, "hunyuan-large": 389, "kimi-k2": 1026, "llama-2-7b": 6.74,
    "llama-3.1-405b": 405.9, "llama-3.1-70b": 70.6, "minimax-m1": 456, "mistral-nemo-12b": 12.25, "mixtral-8x7b": 46.7,
    "phi-4": 14.7, "qwen3-32b": 32.8,
}  # fmt: skip
"""Billions of parameters, by model cards and reports."""


@pytest.mark.parametrize("name", NAMES)
def test_a_config_is_counted_and_listed_with_what_it_was_checked_against(name: str) -> None:
    model = geometry(CONFIGS / f"{name}.json")
    row = ROWS[name]
    assert f"| {model.token_bytes(32768, model.forms('bf16')):,.0f} |" in row
    assert ("log: " in row, "transformers" in row) == (name in LOGGED, name in HELD)
    assert (" nothing " in row) == (name not in LOGGED and name not in HELD)


def test_a_config_says_where_its_values_are_from() -> None:
    assert all(json.loads((CONFIGS / f"{name}.json").read_text())["_about"] for name in NAMES)
    assert len(NAMES) >= 60


@pytest.mark.parametrize("name", engines.names())
def test_an_engine_is_listed_with_its_release(name: str) -> None:
    module, _ = engines.find(name)
    assert name in ROWS
    assert name == "none" or module.VERSION in ROWS[name]


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_weights_by_formula_are_near_the_published_size(name: str, billions: float) -> None:
    found = geometry(CONFIGS / f"{name}.json").weights
    assert found is not None
    assert found.parameters / 1e9 == pytest.approx(billions, rel=0.03)


def test_a_model_type_has_one_family() -> None:
    known: dict[str, Any] = families.model_types()
    assert len(known) > 150
    assert set(known.values()) == set(families.module_names(families.__path__))
