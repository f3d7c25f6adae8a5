"""Ways to spread KV over ranks, found by file name: `names()` imports nothing, `get(name)` imports one."""

from __future__ import annotations

from difflib import get_close_matches

from engine.discovery import load, module_names
from engine.lab.shards.partitions._base import Partition, Stretch

__all__ = ["Partition", "Stretch", "get", "names"]


def names() -> list[str]:
    return list(module_names(__path__))


def get(name: str) -> Partition:
    """One partition. Raises ValueError with the nearest name there is."""
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f", did you mean {near[0]!r}" if near else ""
        raise ValueError(f"no partition {name!r}, there are {', '.join(names())}{hint}")
    made: Partition = load(__name__, name).make()
    return made
