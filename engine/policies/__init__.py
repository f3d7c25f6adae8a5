"""Policies decide which KV is kept, where and in what form; one file each, found by its name."""

from __future__ import annotations

from engine.discovery import load, module_names
from engine.policies._base import Policy


def names() -> tuple[str, ...]:
    """Every policy's name."""
    return module_names(__path__)


def get(name: str) -> Policy:
    """Return the policy of that name (KeyError when there is none)."""
    if name not in names():
        raise KeyError(name)
    policy: Policy = load(__name__, name).POLICY
    return policy
