"""Near-duplicate keys: eight facts share a key and differ in one tag, `ASK t k` -> v; the margin is low by design.

The tag is the fact's first token, in KEY's place: two whole tokens as a key did not form in a decoder this small.
"""

from __future__ import annotations

import random

from engine.lab.recall.task import ASK, NODES, TAGS
from engine.lab.recall.tasks._base import Episode, Question, converse, families

ALIKE = 8
MOST_FACTS = len(NODES) * ALIKE


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    keys = rng.sample(NODES, -(-facts // ALIKE))
    rest = facts - ALIKE * (len(keys) - 1)
    sizes = [(key, rng.sample(TAGS, ALIKE if index else rest)) for index, key in enumerate(keys)]
    text, values_at = families(rng, context, sizes)
    questions = [
        Question((ASK, tag, key), (value,), (at,)) for (tag, key, value), at in values_at.items() if key != keys[0]
    ]
    return Episode(text.tokens, converse(rng, questions, dialogues))
