"""A small model and a sink attached to it, for tests that need transformers; skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from probes.attach_transformers import attach
from tests.unit.probes.llama import Rows, small


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("transformers", reason="transformers is not installed")
    return pytest.importorskip("torch")


@pytest.fixture
def model(torch: Any) -> Any:
    return small(torch)


@pytest.fixture
def rows(model: Any) -> Iterator[Rows]:
    found = Rows()
    recorder = attach(model, sink=found)
    yield found
    recorder.detach()
