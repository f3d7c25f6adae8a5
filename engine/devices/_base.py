"""What a backend is to the engine: where model and pool lie, which operators run there, and what a step is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.kernels._base import DecodeBatch, Keep
from engine.model import Decoder
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.pool import Pool

TIMED_EVERY = 64
"""Decode steps on a device with a queue from one that runs in phases to the next."""
LENS, WANTED, WINDOW, SOURCE, GIVEN = range(5)


class Batch:
    """What a step must know of its requests, in buffers that stay where they are, so that a graph can read them again.

    ``numbers`` int32 [5, requests]: tokens, blocks wanted, first block of the window, row of the step before whose
    token this one takes (-1: ``given``). ``table`` int32 [requests, width]; beyond a request's blocks it says anything.
    The host's: ``ids`` and ``slots`` int64 [requests], where the newest rows go; ``longest``, in tokens; ``now``, the
    batch as wide as that.
    """

    def __init__(self, requests: int, width: int, device: torch.device) -> None:
        self.requests, self.width = requests, width
        self.numbers = torch.zeros(5, requests, dtype=torch.int32, device=device)
        self.table = torch.zeros(requests, width, dtype=torch.int32, device=device)
        self.ids: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.slots: npt.NDArray[np.int64] = self.ids
        self.longest = 0
        self.now = DecodeBatch(self.table, self.lens)

    @property
    def lens(self) -> Tensor:
        return self.numbers[LENS]


@dataclass(frozen=True)
class Mode:
    """What a step's operators are chosen by; a graph is captured for each batch bucket of it."""

    kernels: str
    selector: str
    keep: Keep | None
    forms: tuple[str, ...]
    """Cold forms that pages may have: kernels look for no others, and are fastest where there are none."""
    careful: bool
    """Whether the host must know each choice at once: it fetches pages, or counts who is chosen how often."""


@dataclass
class Traffics:
    """By layer: pages read in each form, entries read, entries there were (tokens, mean over kv heads)."""

    hot: list[int] = field(default_factory=list)
    cold: list[int] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    total: list[int] = field(default_factory=list)

    def add(self, more: Traffics) -> None:
        for mine, others in ((self.hot, more.hot), (self.cold, more.cold), (self.total, more.total)):
            mine[:] = [a + b for a, b in zip(mine, others, strict=True)] if mine else others
        self.read[:] = [a + b for a, b in zip(self.read, more.read, strict=True)] if self.read else more.read


@dataclass(slots=True)
class Landed:
    """What the steps that one call took in have read, and seconds they took: ``prefill`` and, of it, dequantising;
    ``decode`` on the device, of which ``timed`` was timed by phase; ``parts`` of decode by phase. The parts of a step
    that was not timed are the last timed step's shares of it.
    """

    traffic: Traffics | None = None
    prefill: float = 0.0
    prefill_decompress: float = 0.0
    decode: float = 0.0
    timed: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)


class Reader(Protocol):
    """Chooses and reads pages for one batch."""

    def select(self, layer: int, q: Tensor) -> None:
        """q [requests, q_heads, d]: decide what `attend` reads."""
        ...

    def attend(self, layer: int, q: Tensor, mark: Mark | None) -> Tensor:
        """[requests, q_heads, d]."""
        ...

    def windowed(self, layer: int, q: Tensor, window: int, mark: Mark | None) -> Tensor:
        """As `attend`, over each context's newest ``window`` tokens, whatever was chosen."""
        ...

    def chosen(self) -> Tensor:
        """Block ids int64 [requests, kv_heads, n] of the last choice, on the host, -1 where none is. Not in a graph."""
        ...

    def counts(self) -> Tensor:
        """What was read since the batch was filled, on its way to the host, as `traffics` takes it."""
        ...

    def traffics(self, counts: Tensor, windows: tuple[int, ...], lens: list[int]) -> Traffics: ...


class Operators(Protocol):
    """What must be had for a device: store, choose and read, prefill, observe. Pools are one a layer, as the cache of
    that device gives them.
    """

    KERNELS: tuple[str, ...]
    """Kernels to choose from."""

    @property
    def pool(self) -> Callable[[KVCache], Pool]:
        """Makes the pool of a cache there."""
        ...

    def warm_up(self, cache: Any, forms: tuple[str, ...]) -> None:
        """Compile what compiles at first use, with pages of these cold forms: no compilation lands in a measurement."""
        ...

    @property
    def compiles(self) -> tuple[int, float]:
        """Kernels compiled so far for shapes they had not met, and the seconds that took."""
        ...

    def append(self, k: Tensor, v: Tensor, pool: Any, batch: Batch) -> None:
        """k, v [requests, kv_heads, d] of the newest tokens into their pages."""
        ...

    def store(self, k: Tensor, v: Tensor, pool: Any, block: Tensor, slot: Tensor) -> None:
        """k, v [n, kv_heads, d] to slots int64 [n] of hot blocks int64 [n]."""
        ...

    def reader(self, pools: Sequence[Any], batch: Batch, mode: Mode) -> Reader: ...

    def chooser(self, pools: Sequence[Any], batch: Batch, mode: Mode) -> Reader:
        """A reader that may be asked what it chose."""
        ...

    def chunk(
        self, q: Tensor, pool: Any, table: Tensor, start: int, window: int, mark: Mark | None = None
    ) -> tuple[Tensor, Any]:
        """Attention of q [n, q_heads, d] from token ``start`` over stored pages ``table`` int32 [blocks].

        The result, and what `observe` needs of it.
        """
        ...

    def observe(
        self, q: Tensor, seen: Any, pool: Any, table: Tensor, start: int, sampled: range, window: int
    ) -> Tensor:
        """Attention mass float32 [full blocks, kv_heads] that the ``sampled`` tokens (16 at most) give; the rest as
        `chunk` took and returned it.
        """
        ...


@dataclass(frozen=True)
class Device:
    """``queued``: work runs beside the host, so that a step may be launched before the one before is known."""

    name: str
    device: torch.device
    dtype: torch.dtype
    operators: Operators
    graphs: bool = False
    prepare: Callable[[Decoder], None] = lambda model: None
    """Called once with the model, in place and on the device."""
    queued: bool = True

    @property
    def precision(self) -> str:
        return str(self.dtype).removeprefix("torch.")
