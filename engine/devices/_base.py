"""What a device is to the engine: where model and pool lie, which operators run there, and what a step is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from engine.kernels._base import Keep
from engine.kernels._cuda.pool import PagedPool
from engine.model import Decoder

Mark = Callable[[str], None]
"""Called with the name of the phase that ended just now."""
TIMED_EVERY = 64
"""Decode steps on a device from one that runs in phases to the next."""
LENS, WANTED, WINDOW, SOURCE, GIVEN = range(5)


class Batch:
    """What a step must know of its requests, in buffers that stay where they are, so that a graph can read them again.

    ``numbers`` int32 [5, requests]: tokens, blocks wanted, first block of the window, row of the step before whose
    token this one takes (-1: ``given``). ``table`` int32 [requests, width].
    """

    def __init__(self, requests: int, width: int, device: torch.device) -> None:
        self.requests, self.width = requests, width
        self.numbers = torch.zeros(5, requests, dtype=torch.int32, device=device)
        self.table = torch.zeros(requests, width, dtype=torch.int32, device=device)

    @property
    def lens(self) -> Tensor:
        return self.numbers[LENS]


@dataclass
class Traffics:
    """By layer: pages read in each form, entries read, entries there were (tokens, mean over kv heads)."""

    hot: list[int] = field(default_factory=list)
    cold: list[int] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    total: list[int] = field(default_factory=list)


class Reader(Protocol):
    """Chooses and reads pages for one batch.

    ``counts`` int32 [layers, 1 + the pools' forms]: pages that each layer read last, hot ones first.
    """

    def select(self, layer: int, q: Tensor) -> None:
        """q [requests, q_heads, d]: decide what `attend` reads."""
        ...

    def attend(self, layer: int, q: Tensor, mark: Mark | None) -> Tensor:
        """[requests, q_heads, d]."""
        ...

    def counts(self) -> Tensor: ...


class Operators(Protocol):
    """What must be had for a device. Pools are one a layer."""

    def append(self, k: Tensor, v: Tensor, pool: PagedPool, batch: Batch) -> None:
        """k, v [requests, kv_heads, d] of the newest tokens into their pages, and representatives of full blocks."""
        ...

    def summarise(self, pools: Sequence[PagedPool], ids: Tensor) -> None:
        """Representatives of full hot blocks int64 [n], in every layer."""
        ...

    def freeze(self, pool: PagedPool, form: str, pages: Tensor) -> Tensor:
        """Hot pages int64 [n] in a cold form: bytes uint8 [n, page_bytes]."""
        ...

    def reader(self, pools: Sequence[PagedPool], batch: Batch, keep: Keep | None) -> Reader: ...

    def chunk(self, q: Tensor, pool: PagedPool, table: Tensor, start: int, window: int) -> tuple[Tensor, Tensor]:
        """Attention of q [n, q_heads, d] from token ``start`` over stored pages ``table`` int32 [blocks].

        The result, and log2 of each softmax's sum float32 [n, q_heads].
        """
        ...

    def observe(
        self, q: Tensor, mass_at: Tensor, pool: PagedPool, table: Tensor, start: int, blocks: int, window: int
    ) -> Tensor:
        """Attention mass float32 [blocks, kv_heads] that up to 16 queries give; ``mass_at`` as `chunk` returned it."""
        ...


@dataclass(frozen=True)
class Device:
    """``operators`` None: the engine's own path for the CPU, which wants no other."""

    name: str
    device: torch.device
    dtype: torch.dtype
    operators: Operators | None = None
    graphs: bool = False
    prepare: Callable[[Decoder], None] = lambda model: None
    """Called once with the model, in place and on the device."""

    @property
    def precision(self) -> str:
        return str(self.dtype).removeprefix("torch.")
