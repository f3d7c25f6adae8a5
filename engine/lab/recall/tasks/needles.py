"""One fact among needles that all look alike, up to a haystack of nothing else: `ASK t k` -> v.

A fact is found by its tag and key together, so that 65536 tokens can be filled; every key gets as few tags as the
number of facts allows.
"""

from __future__ import annotations

import random

from engine.lab.recall.task import ASK, NODES, TAGS
from engine.lab.recall.tasks._base import Episode, Question, converse, families

MOST_FACTS = len(NODES) * len(TAGS)


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    per_key = -(-facts // len(NODES))
    keys = rng.sample(NODES, -(-facts // per_key))
    rest = facts - per_key * (len(keys) - 1)
    sizes = [(key, rng.sample(TAGS, per_key if index else rest)) for index, key in enumerate(keys)]
    text, values_at = families(rng, context, sizes)
    questions = [Question((ASK, tag, key), (value,), (at,)) for (tag, key, value), at in values_at.items()]
    return Episode(text.tokens, converse(rng, questions, dialogues))
