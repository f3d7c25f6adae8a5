"""SmolLM2, a real language model, answers through every policy that keeps everything as one causal pass says."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from engine import policies
from engine.weights import open_model
from engine.weights.smollm2 import INSTALL, path
from tests.unit.engine.test_greedy import check


@pytest.mark.slow
@pytest.mark.parametrize("name", policies.names())
def test_smollm2_says_what_the_oracle_says(name: str) -> None:
    try:
        path()
    except FileNotFoundError:
        pytest.skip(f"needs {INSTALL}")
    loaded = open_model("smollm2", "cpu")
    check(loaded.config, loaded.model, name, tuple(range(1000, 1040)))
