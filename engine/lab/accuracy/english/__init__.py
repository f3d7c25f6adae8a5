"""Tasks in English, one a file, found by its name: made up on the spot, so that no model can have read them.

A module has `make(rng, encode, context, density, dialogues) -> Episode`; ``encode`` turns a piece of text into tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.discovery import load, module_names
from engine.lab.recall.tasks import Episode
from engine.tokenizer import Tokenizer

Encode = Callable[[str], list[int]]


def names() -> tuple[str, ...]:
    return module_names(__path__)


def make(tokenizer: Tokenizer, task: str, seed: int, context: int, density: float | None, dialogues: int) -> Episode:
    """One context of about ``context`` tokens. TextError where the vocabulary cannot be had, ValueError for sizes."""
    rng = random.Random(f"{task} {seed} {context} {density}")
    episode: Episode = load(__name__, task).make(rng, tokenizer.encode, context, density, dialogues)
    return episode
