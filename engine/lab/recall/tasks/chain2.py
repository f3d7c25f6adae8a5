"""Two hops, each emitted: the value of a key is the next key, `ASK k` -> k1 k2."""

from __future__ import annotations

import random

from engine.lab.recall.task import NODES
from engine.lab.recall.tasks._base import Episode, chains, converse

HOPS = 2
MOST_FACTS = len(NODES) * HOPS // (HOPS + 1)


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    text, questions = chains(rng, context, facts, HOPS)
    return Episode(text.tokens, converse(rng, questions, dialogues))
