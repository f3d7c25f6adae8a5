"""What the laboratory can be ordered to do, one job a file, found by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from engine.discovery import load, module_names

if TYPE_CHECKING:
    from engine.weights._base import Loaded

Tell = Callable[[str], None]


class Job(Protocol):
    def run(self, order: dict[str, Any], loaded: Loaded, tell: Tell) -> Iterator[dict[str, Any]]:
        """Rows as they are measured. ValueError says what is wrong with the order."""
        ...


def names() -> tuple[str, ...]:
    return module_names(__path__)


def get(name: str) -> Job:
    if name not in names():
        raise ValueError(f"job {name!r}: expected one of {', '.join(names())}")
    job: Job = load(__name__, name)
    return job
