"""What every task makes: a document, and conversations over it with their right answers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.lab.recall.task import ASK, KEY, NODES, scatter

Fact = tuple[int, int, int]
"""Marker (KEY or a tag), key, value."""


@dataclass(frozen=True)
class Question:
    """Tokens that ask, the tokens that must follow, and which of those only the document can tell.

    `scored` are indices into `answer`; the rest repeats the question in the answer's form. `needs` are where in the
    document the values stand that the answer is read from.
    """

    tokens: tuple[int, ...]
    answer: tuple[int, ...]
    needs: tuple[int, ...] = ()
    scored: tuple[int, ...] = (0,)

    def right_count(self, generated: Sequence[int]) -> int:
        """How many scored tokens `generated` has right."""
        return sum(index < len(generated) and generated[index] == self.answer[index] for index in self.scored)


@dataclass(frozen=True)
class Dialogue:
    """Two turns: `second` follows `first` and its answer, and asks for facts that `first` did not need."""

    first: Question
    second: Question


@dataclass(frozen=True)
class Episode:
    """A document and independent conversations, each of which starts right behind it."""

    document: tuple[int, ...]
    dialogues: tuple[Dialogue, ...]


@dataclass(frozen=True)
class Text:
    """A document and where the value of each of its facts stands, in the order that the facts were given."""

    tokens: tuple[int, ...]
    values_at: tuple[int, ...]


def write(rng: random.Random, context: int, facts: Sequence[Fact]) -> Text:
    """Scatter `facts` in random order over a document of `context` tokens."""
    order = rng.sample(range(len(facts)), len(facts))
    tokens, begins = scatter(rng, context, [facts[index] for index in order])
    values_at = [0] * len(facts)
    for index, begin in zip(order, begins, strict=True):
        values_at[index] = begin + 2
    return Text(tokens, tuple(values_at))


def converse(rng: random.Random, questions: Sequence[Question], dialogues: int) -> tuple[Dialogue, ...]:
    """Pairs of different questions; ValueError when there are not two."""
    if len(questions) < 2:
        raise ValueError(
            f"{len(questions)} questions can be asked; expected 2 or more: raise the length or the density"
        )
    return tuple(Dialogue(*rng.sample(questions, 2)) for _ in range(dialogues))


def chains(rng: random.Random, context: int, facts: int, hops: int) -> tuple[Text, tuple[Question, ...]]:
    """A document of chains of `hops` facts, each fact's value the key of the next, and a question for each chain."""
    count = facts // hops
    nodes = rng.sample(NODES, count * (hops + 1) + facts % hops)
    paths = [nodes[start : start + hops + 1] for start in range(0, count * (hops + 1), hops + 1)]
    written = [(KEY, key, value) for path in paths for key, value in pairwise(path)]
    written += [(KEY, key, rng.choice(nodes)) for key in nodes[count * (hops + 1) :]]
    text = write(rng, context, written)
    questions = []
    for index, path in enumerate(paths):
        needs = text.values_at[index * hops : (index + 1) * hops]
        questions.append(Question((ASK, path[0]), tuple(path[1:]), needs, tuple(range(hops))))
    return text, tuple(questions)


def families(
    rng: random.Random, context: int, sizes: Iterable[tuple[int, Sequence[int]]]
) -> tuple[Text, Mapping[Fact, int]]:
    """A document where each key has one fact per tag, with values drawn freely; and where each fact's value stands."""
    facts = [(tag, key, rng.choice(NODES)) for key, tags in sizes for tag in tags]
    text = write(rng, context, facts)
    return text, dict(zip(facts, text.values_at, strict=True))
