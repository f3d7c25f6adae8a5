"""Two facts in a context that says nothing else; each turn asks for one."""

from __future__ import annotations

import random

from engine.lab.accuracy.english import multikey
from engine.lab.accuracy.english._words import Encode
from engine.lab.recall.tasks import Episode


def make(rng: random.Random, encode: Encode, context: int, density: float | None, dialogues: int) -> Episode:
    return multikey.make(rng, encode, context, 2 / context, dialogues)
