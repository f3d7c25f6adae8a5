"""Two facts in a context that says nothing else; each turn asks for one."""

from __future__ import annotations

import random

from engine.accuracy.english import multikey
from engine.accuracy.english._words import Encode
from engine.recall.tasks import Episode


def make(rng: random.Random, encode: Encode, context: int, density: float | None, dialogues: int) -> Episode:
    return multikey.make(rng, encode, context, 2 / context, dialogues)
