"""From logits to tokens: greedy, or drawn by temperature and nucleus with a request's own random numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.request import Request


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen and which of them end the answer. Temperature 0 is greedy; ``seed`` None is chance.

    ``forced`` tokens are taken whatever the logits say, before any is chosen: a given answer is scored so.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    forced: tuple[int, ...] = ()

    def numbers(self) -> random.Random | None:
        """A fresh source of random numbers for one request; None when it needs none."""
        return random.Random(self.seed) if self.temperature > 0 else None


GREEDY = Sampling()


def choose(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """One token for each request from logits [N, vocab]; greedy ties go to the lowest id.

    A request's draws depend on its logits and its seed alone, not on who shares the batch.
    """
    chosen: list[int] = logits.argmax(-1).tolist()
    for row, request in enumerate(requests):
        if len(request.generated) < len(request.sampling.forced):
            chosen[row] = request.sampling.forced[len(request.generated)]
        elif request.numbers is not None:
            chosen[row] = draw(logits[row], request.sampling, request.numbers.random())
    return chosen


def draw(logits: Tensor, sampling: Sampling, point: float) -> int:
    """The token at ``point`` (0 to 1) of the cumulative distribution of logits [vocab].

    With ``top_p`` below 1 only the fewest most likely tokens that together reach it take part (arXiv 1904.09751).
    """
    chances = torch.softmax((logits.double() - logits.max()) / sampling.temperature, -1)
    order = None
    if sampling.top_p < 1.0:
        chances, order = chances.sort(descending=True, stable=True)
        reached = chances.cumsum(-1)
        chances = chances[: int((reached < sampling.top_p).sum()) + 1]
    reached = chances.cumsum(-1)
    place = int(torch.searchsorted(reached, point * reached[-1], right=True).clamp_max(len(chances) - 1))
    return place if order is None else int(order[place])
