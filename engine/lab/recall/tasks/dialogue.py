"""Two turns: after more filler, the second asks for a fact far from the first one's: `ASK k` -> v ... `ASK j` -> u."""

from __future__ import annotations

import random

from engine.lab.recall.task import FILLER, NODES
from engine.lab.recall.tasks import recall
from engine.lab.recall.tasks._base import Dialogue, Episode, Question

MOST_FACTS = len(NODES)
BETWEEN = 64
"""Filler tokens before the second question."""
APART = 8
"""The two facts are at least a document's eighth apart."""


def make(rng: random.Random, context: int, facts: int, dialogues: int) -> Episode:
    made = recall.make(rng, context, facts, 8 * dialogues)
    far = [pair for pair in made.dialogues if abs(pair.first.needs[0] - pair.second.needs[0]) >= context // APART]
    if len(far) < dialogues:
        raise ValueError(f"{facts} facts in {context} tokens lie too close together: raise the length or the density")
    return Episode(made.document, tuple(Dialogue(pair.first, _later(rng, pair.second)) for pair in far[:dialogues]))


def _later(rng: random.Random, question: Question) -> Question:
    filler = tuple(rng.choices(FILLER, k=BETWEEN))
    return Question((*filler, *question.tokens), question.answer, question.needs, question.scored)
