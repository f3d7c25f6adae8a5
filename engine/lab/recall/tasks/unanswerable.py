"""A key that the document does not have: `ASK k` -> NONE; turn 2 asks for one that it has."""

from __future__ import annotations

import random

from engine.lab.recall.task import ASK, KEY, NODES, NONE
from engine.lab.recall.tasks._base import Dialogue, Episode, Question, write

ABSENT = 64
"""Nodes that no fact names."""
MOST_FACTS = len(NODES) - ABSENT


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    nodes = rng.sample(NODES, facts + ABSENT)
    keys, absent = nodes[:facts], nodes[facts:]
    values = keys[1:] + keys[:1]
    text = write(rng, context, [(KEY, key, value) for key, value in zip(keys, values, strict=True)])
    pairs = []
    for index in rng.choices(range(facts), k=dialogues):
        known = Question((ASK, keys[index]), (values[index],), (text.values_at[index],))
        pairs.append(Dialogue(Question((ASK, rng.choice(absent)), (NONE,)), known))
    return Episode(text.tokens, tuple(pairs))
