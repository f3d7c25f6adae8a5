"""One hop: the value of one key among many, `ASK k` -> v."""

from __future__ import annotations

import random

from engine.lab.recall.task import ASK, KEY, NODES
from engine.lab.recall.tasks._base import Episode, Question, converse, write

MOST_FACTS = len(NODES)


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    keys = rng.sample(NODES, facts)
    values = keys[1:] + keys[:1]
    text = write(rng, context, [(KEY, key, value) for key, value in zip(keys, values, strict=True)])
    questions = [
        Question((ASK, key), (value,), (at,)) for key, value, at in zip(keys, values, text.values_at, strict=True)
    ]
    return Episode(text.tokens, converse(rng, questions, dialogues))
