"""Ways to launch that are compared, and the calls that a measured shape makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import torch

from engine.kernels._cuda.attend import Launch, attend
from engine.kernels._cuda.pool import PagedPool
from engine.kernels._cuda.select import Choice
from engine.kernels._cuda.worklist import WorkList, parts_for
from tests.bench.gpu_shapes import Set

SCALE = 128**-0.5
# warps, stages, programs, eviction policy
CUTS = [
    *product((2,), (3,), (132, 264, 396), ("",)),
    *product((2,), (2,), (528, 660), ("",)),
    *product((4,), (2,), (264, 528), ("",)),
    *product((4,), (3,), (132, 264, 396), ("",)),
    *product((4,), (4,), (132, 264), ("",)),
    (2, 3, 264, "evict_first"),
    (4, 2, 528, "evict_first"),
]
CHOICES = [Choice(*how) for how in ((64, 4), (128, 4), (128, 8), (256, 8), (256, 16), (512, 16))]
# warps, stages hot, stages cold, programs
MIXES = [
    *product((4,), (3,), (3,), (264, 396)),
    *product((4,), (2,), (2, 3), (264, 396, 528)),
    *product((8,), (2, 3), (2, 3), (132, 264)),
    *product((2,), (2,), (2,), (396, 528)),
]

Calls = list[Callable[[], object]]


def attention(
    sets: Sequence[Set], pool: PagedPool, launch: Launch, *, dense: bool, plan: torch.Tensor | None = None
) -> Calls:
    return [lambda s=s: attend(s.q, s.out, pool, s.dense if dense else s.sparse, SCALE, launch, plan) for s in sets]


def selection(sets: Sequence[Set], pool: PagedPool, how: Choice) -> Calls:
    return [lambda s=s: s.chooser.choose(s.q, pool, s.table, s.lens, s.sparse, how) for s in sets]


def alternating(first: Calls, second: Calls) -> Calls:
    """Calls of both in turn, each pair as one."""

    def both(a: Callable[[], object], b: Callable[[], object]) -> None:
        a()
        b()

    return [lambda a=a, b=b: both(a, b) for a, b in zip(first, second, strict=True)]


def cut(work: WorkList, warps: int, stages: int, programs: int, cold_stages: int = 3, evict: str = "") -> Launch:
    return Launch(parts_for(work.pairs, longest(work), programs), warps, stages, cold_stages, evict)


def longest(work: WorkList) -> int:
    """Pages of the pair that reads most."""
    return int(work.counts.sum(0).max())
