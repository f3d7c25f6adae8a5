"""All four values of one key, scattered over the document: `LIST k` -> t0 k v0 t1 k v1 t2 k v2 t3 k v3.

The answer names tag and key before each value, as the facts do; only values are scored.
"""

from __future__ import annotations

import random

from engine.lab.recall.task import LIST, NODES, TAGS
from engine.lab.recall.tasks._base import Episode, Question, converse, families

VALUES = 4
MOST_FACTS = len(NODES) * VALUES


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    keys = rng.sample(NODES, -(-facts // VALUES))
    rest = facts - VALUES * (len(keys) - 1)
    text, values_at = families(rng, context, [(key, TAGS[: VALUES if i else rest]) for i, key in enumerate(keys)])
    written = list(values_at.items())[rest:]
    questions = []
    for start in range(0, len(written), VALUES):
        of_key = written[start : start + VALUES]
        answer = tuple(token for fact, _ in of_key for token in fact)
        needs = tuple(at for _, at in of_key)
        questions.append(Question((LIST, of_key[0][0][1]), answer, needs, tuple(range(2, 3 * VALUES, 3))))
    return Episode(text.tokens, converse(rng, questions, dialogues))
