"""Aggregation: a key's eight facts give one value four times and four others once; `ASK k` -> the frequent one.

No single fact tells the answer: what is merged, weighted or dropped changes the count.
"""

from __future__ import annotations

import random

from engine.lab.recall.task import ASK, KEY, NODES
from engine.lab.recall.tasks._base import Episode, Question, converse, write

VOTES = 8
FOR = 4
MOST_FACTS = len(NODES) * VOTES


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    keys = rng.sample(NODES, -(-facts // VOTES))
    polls = [_poll(rng, key) for key in keys]
    written = [(KEY, key, value) for key, (winner, others) in polls for value in (*[winner] * FOR, *others)][:facts]
    text = write(rng, context, written)
    questions = []
    for index, (key, (winner, _)) in enumerate(polls[: facts // VOTES]):
        first = index * VOTES
        questions.append(Question((ASK, key), (winner,), text.values_at[first : first + VOTES]))
    return Episode(text.tokens, converse(rng, questions, dialogues))


def _poll(rng: random.Random, key: int) -> tuple[int, tuple[int, tuple[int, ...]]]:
    winner, *others = rng.sample(NODES, VOTES - FOR + 1)
    return key, (winner, tuple(others))
