"""The CPU: the engine's own compiled kernels, float32. What a step does is known when the call returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from engine import kernels
from engine.devices._base import Batch, Device, Mode, Traffics
from engine.devices._together import Together
from engine.forms import HOT
from engine.kernels import block
from engine.kernels._base import Kernels, Selection
from engine.kernels.compiled import Compiled
from engine.model import Decoder
from engine.packing import pack
from engine.pool import HostPool, Layer, host_pool
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache

Role = Literal["choose", "read"]


class Host:
    """The kernels of `engine.kernels`. ``made``: those in use, by what they do and name."""

    KERNELS: tuple[str, ...] = ("generic", "block", "compiled", "oracle")

    pool = HostPool

    def __init__(self) -> None:
        self.made: dict[tuple[Role, str], Kernels] = {}

    def kernels(self, role: Role, name: str) -> Kernels:
        if (role, name) not in self.made:
            self.made[role, name] = kernels.get(name)
        return self.made[role, name]

    def warm_up(self, cache: KVCache, forms: tuple[str, ...]) -> None:
        block.warm_up(cache.geometry)

    @property
    def compiles(self) -> tuple[int, float]:
        made = [one for one in self.made.values() if isinstance(one, Compiled)]
        return sum([one.compiles for one in made]), sum([one.compile_s for one in made])

    def append(self, k: Tensor, v: Tensor, pool: Layer, batch: Batch) -> None:
        host_pool(pool.cache).store_rows(pool.number, batch.ids, batch.slots, k, v)

    def store(self, k: Tensor, v: Tensor, pool: Layer, block: Tensor, slot: Tensor) -> None:
        pool.cache.pool.store(pool.number, block, slot, k, v)

    def reader(self, pools: Sequence[Layer], batch: Batch, mode: Mode) -> HostReader:
        choose, read = self.kernels("choose", mode.selector), self.kernels("read", mode.kernels)
        return HostReader(pools, batch, mode, choose, read)

    chooser = reader

    def chunk(
        self, q: Tensor, pool: Layer, table: Tensor, start: int, window: int, mark: Mark | None = None
    ) -> tuple[Tensor, Together]:
        together = Together(pool.cache, pool.number, table, start + len(q), mark)
        return together.attend(q, start, window), together

    def observe(
        self, q: Tensor, seen: Together, pool: Layer, table: Tensor, start: int, sampled: range, window: int
    ) -> Tensor:
        return seen.mass(q[sampled.start - start : sampled.stop - start], sampled.start, window)


class HostReader:
    """One set of kernels chooses, another reads; they may be the same."""

    def __init__(self, pools: Sequence[Layer], batch: Batch, mode: Mode, choose: Kernels, read: Kernels) -> None:
        self.pools, self.batch, self.keep = pools, batch, mode.keep
        self._choose, self._read = choose, read
        self._cache = pools[0].cache
        self._selection: Selection | None = None
        layers = len(pools)
        self._found = Traffics([0] * layers, [0] * layers, [0.0] * layers, [0] * layers)

    def select(self, layer: int, q: Tensor) -> None:
        if self.keep is not None:
            self._selection = self._choose.select(q, layer, self._cache, self.batch.now, self.keep)

    def attend(self, layer: int, q: Tensor, mark: Mark | None) -> Tensor:
        scale = self._cache.geometry.head_dim**-0.5
        out = self._read.attend(q, layer, self._cache, self.batch.now, self._selection, scale, mark)
        read = self._read.traffic
        self._book(layer, read.hot_pages, read.cold_pages, read.entries_read, read.entries_total)
        return out

    def windowed(self, layer: int, q: Tensor, window: int, mark: Mark | None) -> Tensor:
        """A window is short: its pages are read whole, by plain operations, one request after another."""
        cache, shape, batch = self._cache, self._cache.geometry, self.batch.now
        out = torch.empty_like(q)
        hot = pages = entries = total = 0
        for row, length in enumerate(batch.context_lens.tolist()):
            first = max(0, length - window)
            skipped = first // shape.block_tokens
            ids = batch.block_table[row, skipped : shape.blocks_for(length)].long()
            before = skipped * shape.block_tokens
            together = Together(cache, layer, ids, length - before, mark)
            out[row] = together.attend(q[row : row + 1], length - 1 - before, window)[0]
            hot += int((cache.page_form[layer, ids] == HOT).sum())
            pages, entries, total = pages + len(ids) * shape.kv_heads, entries + length - first, total + length
        self._book(layer, hot, pages - hot, float(entries), total)
        if mark is not None:
            mark("attend")
        return out

    def _book(self, layer: int, hot: int, cold: int, read: float, total: int) -> None:
        found = self._found
        found.hot[layer], found.cold[layer], found.read[layer], found.total[layer] = hot, cold, read, total

    def chosen(self) -> Tensor:
        batch = self.batch.now
        if self._selection is not None:
            return self._selection.blocks(batch)
        shape = self._cache.geometry
        place = torch.arange(batch.block_table.shape[1])
        beyond = place * shape.block_tokens >= batch.context_lens[:, None]
        everything = batch.block_table.long().masked_fill(beyond, -1)
        return everything[:, None].expand(-1, shape.kv_heads, -1)

    def counts(self) -> Tensor:
        return NOTHING

    def traffics(self, counts: Tensor, windows: tuple[int, ...], lens: list[int]) -> Traffics:
        found = self._found
        return Traffics([*found.hot], [*found.cold], [*found.read], [*found.total])


NOTHING = torch.zeros(0, dtype=torch.int64)


def prepare(model: Decoder) -> None:
    pack(model)


def open_device(text: str, dtype: str) -> Device:
    """ValueError for another type of number: the kernels read float32."""
    if dtype not in ("auto", "float32"):
        raise ValueError(f"dtype {dtype!r}: device {text!r} computes in float32")
    return Device("cpu", torch.device("cpu"), torch.float32, Host(), prepare=prepare, queued=False)
