"""The tail of a training sequence: questions and answers behind the document, in any order."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from engine.lab.recall.task import ASK, FILLER, LIST, NONE

SILENT = -1


class Tail:
    """Collects questions as (tokens, targets) pieces [rows, width] and lays them out in `width` tokens."""

    def __init__(self, rows: int, width: int, generator: torch.Generator) -> None:
        self._rows, self._width, self._generator = rows, width, generator
        self._pieces: list[tuple[Tensor, Tensor]] = []

    def walk(self, nodes: Tensor, told: Tensor) -> None:
        """`ASK n0 n1 ...`: each node's target is the next one, or NONE where the document does not tell it."""
        asking = self._column(ASK)
        targets = torch.where(told[:, :-1], nodes[:, 1:], NONE)
        self._add((asking, nodes), (self._column(SILENT), targets, self._column(SILENT)))

    def ask(self, key: Tensor, value: Tensor, tag: Tensor | None = None) -> None:
        """`ASK k` or `ASK t k`, then the value."""
        question = (self._column(ASK), *(() if tag is None else (tag[:, None],)), key[:, None])
        silent = [self._column(SILENT)] * (len(question) - 1)
        self._add((*question, value[:, None]), (*silent, value[:, None], self._column(SILENT)))

    def ask_absent(self, key: Tensor) -> None:
        self.ask(key, self._column(NONE)[:, 0])

    def ask_list(self, key: Tensor, facts: Tensor) -> None:
        """`LIST k`, then the key's facts [rows, n, 3], all of their tokens supervised."""
        answer = facts.flatten(1)
        question = (self._column(LIST), key[:, None])
        self._add((*question, answer), (self._column(SILENT), answer, self._column(SILENT)))

    def pause(self, tokens: int) -> None:
        """Filler that nothing is asked about."""
        filler = torch.randint(
            FILLER.start,
            FILLER.stop,
            (self._rows, tokens),
            generator=self._generator,
            device=self._generator.device,
        )
        self._add((filler,), (torch.full_like(filler, SILENT),))

    def written(self, ignore: int, rng: random.Random | None) -> tuple[Tensor, Tensor]:
        """Tokens and targets [rows, width], the pieces in an order drawn from `rng`, or as they came."""
        pieces = rng.sample(self._pieces, len(self._pieces)) if rng else self._pieces
        tokens, targets = (torch.cat(part, 1) for part in zip(*pieces, strict=True))
        if tokens.shape[1] != self._width:
            raise ValueError(f"the questions take {tokens.shape[1]} tokens, expected {self._width}")
        return tokens, targets.masked_fill(targets == SILENT, ignore)

    def _add(self, tokens: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> None:
        self._pieces.append((torch.cat(tokens, 1), torch.cat(targets, 1)))

    def _column(self, token: int) -> Tensor:
        return torch.full((self._rows, 1), token, device=self._generator.device)
