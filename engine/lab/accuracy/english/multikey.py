"""Many facts of one kind, one asked for: the special number of one city among those of others."""

from __future__ import annotations

import random

from engine.lab.accuracy.english._words import NAMES, Encode, fact, filler, numbers, question, sentence
from engine.lab.recall.tasks import Dialogue, Episode

DENSITY = 1 / 64
"""Facts per token when none is asked for."""


def make(rng: random.Random, encode: Encode, context: int, density: float | None, dialogues: int) -> Episode:
    """ValueError where fewer than two facts would be written."""
    count = min(len(NAMES), round(context * (density or DENSITY)))
    if count < 2:
        raise ValueError(f"{context} tokens at {density} facts a token: expected two facts or more")
    told = dict(zip(rng.sample(NAMES, count), numbers(rng, count), strict=True))
    facts = [sentence(encode, fact(name, number)) for name, number in told.items()]
    room = context - len(encode("")) - sum(map(len, facts))
    if room < 0:
        raise ValueError(f"{count} facts do not fit into {context} tokens: expected a lower density")
    lines = [*facts, *filler(rng, encode, room)]
    rng.shuffle(lines)
    document = (*encode(""), *(token for line in lines for token in line))
    pairs = [rng.sample(list(told), 2) for _ in range(dialogues)]
    asked = [Dialogue(*(question(encode, name, told[name]) for name in pair)) for pair in pairs]
    return Episode(tuple(document), tuple(asked))
