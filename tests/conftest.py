"""Threads of torch sleep while they wait, as the engine's do: tests run beside each other and beside other work.

Spinning, they take from one another the cores that they wait for; small operators then cost several times as much.
"""

from __future__ import annotations

import os

import pytest

from tests.generated import write_if_stale

# Read once, when torch is first imported: before any test is.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_configure(config: pytest.Config) -> None:
    """Have the synthetic recordings there before tests are collected; workers find what their session wrote."""
    if not hasattr(config, "workerinput"):
        write_if_stale()
