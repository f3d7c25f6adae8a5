"""Who owns every block of every layer, and how even that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.lab.shards.partitions import Partition, Stretch
from engine.lab.shards.shape import Shape

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dealt:
    """`owners`, one a layer: rank by [requests, kv_heads, blocks]."""

    shape: Shape
    partition: Partition
    ranks: int
    owners: tuple[npt.NDArray[np.int16], ...]

    def stage(self, layer: int) -> int:
        """The rank that has all of a layer, where layers are what is cut."""
        return int(self.owners[layer].flat[0])

    def heads(self, rank: int) -> list[int]:
        """The kv heads that are a rank's own, where heads are what is cut."""
        return np.flatnonzero(self.owners[0][0, :, 0] == rank).tolist()

    def blocks(self) -> Counts:
        """(layer, block, kv head) pages held, by rank."""
        held = np.zeros(self.ranks, np.int64)
        for owner in self.owners:
            held += np.bincount(owner.ravel(), minlength=self.ranks)
        return held


def deal(partition: Partition, shape: Shape, ranks: int) -> Dealt:
    """Spread a batch. Raises ValueError where there is too little of what is cut."""
    owners = []
    for layer in range(shape.layers):
        pinned = shape.lasting(layer)
        each = [
            partition.owners(Stretch(layer, shape.layers, request, shape.kv_heads, ranks, pinned))
            for request in range(shape.requests)
        ]
        owners.append(np.stack(each))
    return Dealt(shape, partition, ranks, tuple(owners))


@dataclass(frozen=True)
class Balance:
    """The fullest rank over the mean of all: 1 is even, the number of ranks is all on one. Means and 95th centiles.

    `choice`: selected blocks of one request, layer and head. `request`: of one request and layer, its heads together,
    which is what one layer's attention of one request waits for. `batch`: of one layer, all requests together.
    `step`: all layers together.
    """

    choice: float
    choice_p95: float
    request: float
    request_p95: float
    batch: float
    step: float


def fullest(counts: Counts) -> Counts | npt.NDArray[np.float64]:
    """Largest over mean along the first axis (ranks); 1 where nothing was counted."""
    mean = counts.mean(0)
    found: npt.NDArray[np.float64] = np.where(mean > 0, counts.max(0) / np.where(mean > 0, mean, 1), 1.0)
    return found


def balance(draws: Sequence[Counts]) -> Balance:
    """From selected blocks [ranks, layers, requests, kv_heads], one array a draw."""
    choice = np.concatenate([fullest(one).ravel() for one in draws])
    request = np.concatenate([fullest(one.sum(3)).ravel() for one in draws])
    batch = np.concatenate([fullest(one.sum((2, 3))).ravel() for one in draws])
    step = np.array([float(fullest(one.sum((1, 2, 3)))) for one in draws])
    return Balance(
        float(choice.mean()),
        float(np.quantile(choice, 0.95)),
        float(request.mean()),
        float(np.quantile(request, 0.95)),
        float(batch.mean()),
        float(step.mean()),
    )
