"""Threads of torch sleep while they wait, as the engine's do: tests run beside each other and beside other work.

Spinning, they take from one another the cores that they wait for; small operators then cost several times as much.
"""

from __future__ import annotations

import os

# Read once, when torch is first imported: before any test is.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
