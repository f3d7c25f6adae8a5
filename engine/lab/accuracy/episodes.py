"""Contexts with two turns of questions: the recall tasks, and English ones for models that read text."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from engine.lab.accuracy import english
from engine.lab.recall import tasks as recall
from engine.lab.recall.task import DENSITY
from engine.lab.recall.tasks import Episode

if TYPE_CHECKING:
    from engine.weights._base import Loaded

APART = 1009
"""Between the seeds of two contexts of one cell, so that neighbouring seeds share none."""


def names(loaded: Loaded) -> tuple[str, ...]:
    """The tasks this model can be asked."""
    return recall.names() if loaded.recall else english.names()


def make(loaded: Loaded, task: str, seed: int, context: int, density: float | None, dialogues: int) -> Episode:
    """One context. ValueError says which tasks there are, or what of the sizes cannot be had."""
    known = names(loaded)
    if task not in known:
        near = get_close_matches(task, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"task {task!r}: {loaded.name} can be asked {', '.join(known)}{hint}")
    if loaded.recall:
        return recall.make(task, seed, context, DENSITY if density is None else density, dialogues)
    return english.make(loaded.tokenizer, task, seed, context, density, dialogues)


def several(
    loaded: Loaded, task: str, seed: int, context: int, density: float | None, documents: int, dialogues: int
) -> list[Episode]:
    return [make(loaded, task, seed * APART + number, context, density, dialogues) for number in range(documents)]
