"""Training batches of the recall task, made on the training device; documents are distributed as in `task`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.recall.task import ASK, BOS, FACT_TOKENS, FILLER, KEY, NODES

IGNORE = -100


@dataclass(frozen=True)
class Batch:
    """tokens and targets [batch, length] int64; targets are IGNORE outside the walks."""

    tokens: Tensor
    targets: Tensor
    document_tokens: int


@dataclass(frozen=True)
class BatchShape:
    """Sequences of `length` tokens: one document, then `walks` walks of `steps` supervised tokens each."""

    batch: int
    length: int
    spacing: int
    walks: int
    steps: int

    @property
    def document_tokens(self) -> int:
        return self.length - self.walks * (self.steps + 2)

    @property
    def facts(self) -> int:
        return min(len(NODES), self.document_tokens // self.spacing)


def make_batch(shape: BatchShape, generator: torch.Generator) -> Batch:
    """Fresh documents and walks; walks of one document do not overlap while its cycle is long enough."""
    device, facts = generator.device, shape.facts
    cycle = NODES.start + _shuffled(shape.batch, len(NODES), generator)[:, :facts]
    order = _shuffled(shape.batch, facts, generator)
    keys, values = cycle.gather(1, order), cycle.roll(-1, 1).gather(1, order)
    size = (shape.batch, shape.length)
    tokens = torch.randint(FILLER.start, FILLER.stop, size, generator=generator, device=device)
    tokens[:, 0] = BOS
    slots = shape.document_tokens - 1 - (FACT_TOKENS - 1) * facts
    slot = 1 + _shuffled(shape.batch, slots, generator)[:, :facts].sort(1).values
    slot = slot + (FACT_TOKENS - 1) * torch.arange(facts, device=device)
    for offset, part in enumerate((torch.full_like(keys, KEY), keys, values)):
        tokens.scatter_(1, slot + offset, part)
    targets = torch.full_like(tokens, IGNORE)
    _write_walks(shape, cycle, tokens, targets, generator)
    return Batch(tokens, targets, shape.document_tokens)


def _write_walks(shape: BatchShape, cycle: Tensor, tokens: Tensor, targets: Tensor, generator: torch.Generator) -> None:
    """Fill the tail of `tokens` with `ASK k0 k1 ...` walks and set the targets of k0 ... k(steps - 1)."""
    device, (batch, facts) = cycle.device, cycle.shape
    offset = torch.randint(0, facts, (batch, 1), generator=generator, device=device)
    for walk in range(shape.walks):
        first = shape.document_tokens + walk * (shape.steps + 2)
        index = offset + walk * facts // shape.walks + torch.arange(shape.steps + 1, device=device)
        nodes = cycle.gather(1, index % facts)
        tokens[:, first] = ASK
        tokens[:, first + 1 : first + shape.steps + 2] = nodes
        targets[:, first + 1 : first + shape.steps + 1] = nodes[:, 1:]


def _shuffled(rows: int, count: int, generator: torch.Generator) -> Tensor:
    """[rows, count] int64: an independent permutation of range(count) in every row."""
    return torch.rand(rows, count, generator=generator, device=generator.device).argsort(1)
