"""What English contexts are written with: sentences that say nothing, facts, and questions about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from engine.lab.recall.tasks import Question

Encode = Callable[[str], list[int]]

WHO = ("The gardener", "A neighbour", "The old teacher", "Her brother", "The postman", "A visitor", "The baker")
DID = ("walked past", "looked at", "talked about", "painted", "swept", "wrote a letter about", "stood near")
WHAT = ("the fence", "the river", "the station", "the market", "the bridge", "the orchard", "the harbour")
WHEN = ("in the morning", "before lunch", "on a grey day", "after the rain", "late in autumn", "all afternoon")
NAMES = ("Oslo", "Lima", "Cairo", "Paris", "Quito", "Delhi", "Tokyo", "Rome", "Berlin", "Madrid", "Dublin", "Vienna",
         "Athens", "Warsaw", "Lisbon", "Prague", "Boston", "Denver", "Havana", "Sydney", "Moscow", "Geneva", "Milan",
         "Seoul", "Hanoi", "Nairobi", "Accra", "Tunis", "Riga", "Turin", "Porto", "Lyon", "Kyoto", "Osaka", "Perth",
         "Dallas", "Austin", "Miami", "Naples", "Zurich")  # fmt: skip
DIGITS = 4


def idle(rng: random.Random) -> str:
    return f" {rng.choice(WHO)} {rng.choice(DID)} {rng.choice(WHAT)} {rng.choice(WHEN)}."


def fact(name: str, number: str) -> str:
    return f" The special number of {name} is {number}."


def numbers(rng: random.Random, count: int) -> list[str]:
    """Different numbers of ``DIGITS`` digits."""
    return [str(number) for number in rng.sample(range(10 ** (DIGITS - 1), 10**DIGITS), count)]


def question(encode: Encode, name: str, number: str) -> Question:
    """The fact's own sentence up to its number: what stands there is scored, digit by digit where digits are tokens."""
    asked, whole = encode(f"\n The special number of {name} is"), encode(f"\n The special number of {name} is {number}")
    start = _lead(encode)
    asked, whole = asked[start:], whole[start:]
    answer = tuple(whole[len(asked) :])
    scored = tuple(place for place, token in enumerate(answer) if token != encode(" ")[-1]) or tuple(range(len(answer)))
    return Question(tuple(asked), answer, (), scored)


def filler(rng: random.Random, encode: Encode, tokens: int) -> Iterator[tuple[int, ...]]:
    """Idle sentences, together at most ``tokens`` long."""
    left, start = tokens, _lead(encode)
    while (made := tuple(encode(idle(rng))[start:])) and len(made) <= left:
        left -= len(made)
        yield made


def sentence(encode: Encode, text: str) -> tuple[int, ...]:
    return tuple(encode(text)[_lead(encode) :])


def _lead(encode: Encode) -> int:
    """Tokens that a vocabulary puts before any text."""
    return len(encode(""))
