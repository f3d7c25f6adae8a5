"""The recall task: a long document of facts `KEY k v`, and a walk that recalls one fact per generated token.

The facts of a document form one cycle: the value of a fact is the key of another. After `ASK k0` the right
continuation is succ(k0), succ(succ(k0)), ...; every token is checked against the token before it, so one
wrong token does not spoil the rest.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

VOCAB_SIZE = 2048
BOS, KEY, ASK, NONE, LIST = range(5)
"""Start, before a fact, before a question, the answer when no fact has that key, before a key of several values."""
TAGS = range(16, 32)
"""Stand in for KEY where one key has several facts: a fact is then found by tag and key together."""
FILLER = range(32, 512)
NODES = range(512, VOCAB_SIZE)
FACT_TOKENS = 3
DENSITY = 1 / 24
"""Facts per document token."""


@dataclass(frozen=True)
class Document:
    """Tokens of one document and the map from each key to its value; the map is a single cycle."""

    tokens: tuple[int, ...]
    successor: Mapping[int, int]


def make_document(rng: random.Random, length: int, density: float = DENSITY) -> Document:
    """A document of exactly `length` tokens with round(length * density) facts scattered among filler."""
    cycle = rng.sample(NODES, _fact_count(length, density))
    successor = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    facts = [(KEY, key, successor[key]) for key in rng.sample(cycle, len(cycle))]
    return Document(scatter(rng, length, facts)[0], MappingProxyType(successor))


def scatter(
    rng: random.Random, length: int, facts: Sequence[tuple[int, int, int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A document of `length` tokens with `facts` in that order among filler, and where each fact begins in it."""
    tokens = [BOS, *rng.choices(FILLER, k=length - 1)]
    # Gaps between facts are uniform over all layouts: choose slots in a document where a fact is one token wide.
    slots = sorted(rng.sample(range(1, length - (FACT_TOKENS - 1) * len(facts)), len(facts)))
    begins = tuple(slot + (FACT_TOKENS - 1) * index for index, slot in enumerate(slots))
    for begin, fact in zip(begins, facts, strict=True):
        tokens[begin : begin + FACT_TOKENS] = fact
    return tuple(tokens), begins


def walk(document: Document, start: int, steps: int) -> tuple[int, ...]:
    """The right continuation of `steps` tokens after `ASK start`; it goes round the cycle if it must."""
    tokens, node = [], start
    for _ in range(steps):
        node = expected(document, node)
        tokens.append(node)
    return tuple(tokens)


def prompt(document: Document, start: int) -> tuple[int, ...]:
    """The tokens of a request: the document, then the question."""
    expected(document, start)
    return (*document.tokens, ASK, start)


def expected(document: Document, previous: int) -> int:
    """The token that must follow `previous` in a walk; ValueError when `previous` is no key of the document."""
    try:
        return document.successor[previous]
    except KeyError:
        raise ValueError(f"token {previous} is not a key of this document of {len(document.successor)} facts") from None


def is_right(document: Document, previous: int, token: int) -> bool:
    """Whether `token` is the value of key `previous`; False after a token that is no key."""
    return document.successor.get(previous) == token


def right_count(document: Document, start: int, generated: Sequence[int]) -> int:
    """How many generated tokens are right, each checked against the token actually emitted before it."""
    before = (start, *generated)
    return sum(is_right(document, previous, token) for previous, token in zip(before, generated, strict=False))


def starts(document: Document, steps: int) -> tuple[int, ...]:
    """Keys, in document order, from which `steps` tokens can be walked without meeting a node twice."""
    if steps >= len(document.successor):
        return ()
    tokens = document.tokens
    return tuple(tokens[i + 1] for i, token in enumerate(tokens) if token == KEY)


def _fact_count(length: int, density: float) -> int:
    """Facts that `length` tokens get; ValueError when they do not fit or would not form a chain."""
    facts = round(length * density)
    most = min(len(NODES), (length - 1) // FACT_TOKENS)
    if not 2 <= facts <= most:
        raise ValueError(
            f"{length} tokens at {density:.4g} facts per token make {facts} facts; expected 2 to {most}: "
            f"change the length or the density"
        )
    return facts
