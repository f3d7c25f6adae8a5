"""Training batches of the recall model, made on the training device; documents are laid out as in `task`.

One document holds facts of several kinds, and its tail asks about all of them, so that every task learns from every
length. What stands in a document and what its tail asks is the same for all rows of a batch; tokens are not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.lab.recall._asking import Tail
from engine.lab.recall.task import BOS, FACT_TOKENS, FILLER, KEY, NODES, TAGS

IGNORE = -100
VOTES, VALUES = 8, 4


@dataclass(frozen=True)
class Contents:
    """How many facts of each kind a document has; in a cycle of plain facts `missing` links are left out.

    `polls` keys of eight facts give one value `majority` times; `families` keys have `relatives` facts that differ in
    their tag; `lists` keys have a fact under each of the first four tags. A few nodes stay unnamed when `absent`.
    """

    plain: int = 0
    missing: int = 0
    polls: int = 0
    majority: int = 4
    families: int = 0
    relatives: int = 8
    lists: int = 0
    absent: int = 0

    @property
    def facts(self) -> int:
        return self.plain + self.polls * VOTES + self.families * self.relatives + self.lists * VALUES

    @property
    def keys(self) -> int:
        return self.plain + self.missing + self.polls + self.families + self.lists + self.absent


@dataclass(frozen=True)
class Asked:
    """How many questions of each kind a tail has, and filler tokens somewhere among them."""

    polls: int = 0
    tags: int = 0
    lists: int = 0
    absent: int = 0
    pause: int = 0

    @property
    def tokens(self) -> int:
        return 3 * self.polls + 4 * self.tags + (2 + 3 * VALUES) * self.lists + 3 * self.absent + self.pause


@dataclass(frozen=True)
class Batch:
    """tokens and targets [batch, length] int64; targets are IGNORE where nothing is asked."""

    tokens: Tensor
    targets: Tensor
    document_tokens: int


@dataclass(frozen=True)
class BatchShape:
    """Sequences of `length` tokens: a document, `walks` walks of `steps` supervised tokens, then other questions.

    Without `contents` the document holds one plain fact per `spacing` tokens and nothing else.
    """

    batch: int
    length: int
    spacing: int
    walks: int
    steps: int
    asked: Asked = field(default_factory=Asked)
    contents: Contents | None = None
    kind: str = "plain"

    @property
    def document_tokens(self) -> int:
        return self.length - self.walks * (self.steps + 2) - self.asked.tokens

    @property
    def facts(self) -> int:
        return self.contained.facts

    @property
    def contained(self) -> Contents:
        return self.contents or Contents(plain=min(len(NODES), self.document_tokens // self.spacing))


def make_batch(shape: BatchShape, generator: torch.Generator, rng: random.Random | None = None) -> Batch:
    """Fresh documents and questions; walks of one document do not overlap while its cycle is long enough.

    Tokens come from `generator`; `rng` puts the questions, all of one kind after the other, into a random order.
    """
    contents, device = shape.contained, generator.device
    size = (shape.batch, shape.length)
    nodes = NODES.start + shuffled(shape.batch, len(NODES), generator)
    tail = Tail(shape.batch, shape.length - shape.document_tokens, generator)
    kinds = (contents.plain + contents.missing, contents.polls, contents.families, contents.lists, contents.absent)
    plain, polls, families, lists, absent = torch.split_with_sizes(nodes[:, : contents.keys], kinds, 1)
    facts = [
        _cycle(plain, contents, shape, tail, generator),
        _polls(polls, contents, shape.asked, tail, generator),
        _families(families, contents, shape.asked, tail, generator),
        _lists(lists, shape.asked, tail, generator),
    ]
    for key in absent[:, : shape.asked.absent].unbind(1):
        tail.ask_absent(key)
    tail.pause(shape.asked.pause)
    tokens = torch.randint(FILLER.start, FILLER.stop, size, generator=generator, device=device)
    targets = torch.full_like(tokens, IGNORE)
    tokens[:, 0] = BOS
    _scatter(torch.cat(facts, 1), shape.document_tokens, tokens, generator)
    tokens[:, shape.document_tokens :], targets[:, shape.document_tokens :] = tail.written(IGNORE, rng)
    return Batch(tokens, targets, shape.document_tokens)


def shuffled(rows: int, count: int, generator: torch.Generator) -> Tensor:
    """[rows, count] int64: an independent permutation of range(count) in every row."""
    return torch.rand(rows, count, generator=generator, device=generator.device).argsort(1)


def _scatter(facts: Tensor, document_tokens: int, tokens: Tensor, generator: torch.Generator) -> None:
    """Write facts [rows, n, 3] in random order at random places of the document, uniform over all layouts."""
    rows, count, _ = facts.shape
    order = shuffled(rows, count, generator)
    slots = document_tokens - 1 - (FACT_TOKENS - 1) * count
    slot = 1 + shuffled(rows, slots, generator)[:, :count].sort(1).values
    slot = slot + (FACT_TOKENS - 1) * torch.arange(count, device=facts.device)
    for offset in range(FACT_TOKENS):
        tokens.scatter_(1, slot + offset, facts[:, :, offset].gather(1, order))


def _fact(marker: Tensor | int, key: Tensor, value: Tensor) -> Tensor:
    """Facts [rows, n, 3] of keys and values [rows, n]."""
    return torch.stack((torch.as_tensor(marker, device=key.device).expand_as(key), key, value), -1)


def _any_nodes(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(NODES.start, NODES.stop, like.shape, generator=generator, device=like.device)


def _cycle(cycle: Tensor, contents: Contents, shape: BatchShape, tail: Tail, generator: torch.Generator) -> Tensor:
    """Plain facts along a cycle of nodes, `missing` of them left out, and the walks along it."""
    rows, nodes = cycle.shape
    order = shuffled(rows, nodes, generator)
    told = torch.ones_like(cycle, dtype=torch.bool).scatter_(1, order[:, : contents.missing], False)
    offset = torch.randint(0, max(1, nodes), (rows, 1), generator=generator, device=cycle.device)
    for walk in range(shape.walks):
        index = offset + walk * nodes // shape.walks + torch.arange(shape.steps + 1, device=cycle.device)
        tail.walk(cycle.gather(1, index % nodes), told.gather(1, index % nodes))
    kept = order[:, contents.missing :]
    return _fact(KEY, cycle.gather(1, kept), cycle.roll(-1, 1).gather(1, kept))


def _polls(keys: Tensor, contents: Contents, asked: Asked, tail: Tail, generator: torch.Generator) -> Tensor:
    """Eight facts a key: the first value `majority` times, others once."""
    votes = _any_nodes(keys[:, :, None].expand(-1, -1, VOTES), generator)
    winners = votes[:, :, 0]
    votes[:, :, : contents.majority] = winners[:, :, None]
    for index in range(asked.polls):
        tail.ask(keys[:, index], winners[:, index])
    return _fact(KEY, keys.repeat_interleave(VOTES, 1), votes.flatten(1))


def _families(keys: Tensor, contents: Contents, asked: Asked, tail: Tail, generator: torch.Generator) -> Tensor:
    """`relatives` facts a key, each with another tag."""
    rows, count = keys.shape
    tags = TAGS.start + shuffled(rows * count, len(TAGS), generator)[:, : contents.relatives].reshape(rows, -1)
    every = keys.repeat_interleave(contents.relatives, 1)
    values = _any_nodes(every, generator)
    for index in range(asked.tags):
        # Which fact of a family is asked about does not matter: its tag is drawn.
        at = index % count * contents.relatives + index // count
        tail.ask(every[:, at], values[:, at], tags[:, at])
    return _fact(tags, every, values)


def _lists(keys: Tensor, asked: Asked, tail: Tail, generator: torch.Generator) -> Tensor:
    """Four facts a key, under the first four tags."""
    every = keys.repeat_interleave(VALUES, 1)
    tags = TAGS.start + torch.arange(VALUES, device=keys.device).repeat(keys.shape[1]).expand_as(every)
    facts = _fact(tags, every, _any_nodes(every, generator))
    for index in range(asked.lists):
        tail.ask_list(keys[:, index], facts[:, VALUES * index : VALUES * (index + 1)])
    return facts
