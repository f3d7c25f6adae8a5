"""Where pages lie: how rows get there, are summed up for selection and read. Here: in this process's memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.forms import EVICTED, HOST, HOT, NONE
from engine.representatives import Known, Representatives
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache, Transfer
    from engine.forms._base import Form

CHUNK, SUMMARISED = 256, 64
"""Pages converted, and blocks summed up, at a time: few enough that the copies stay in memory the process has."""
LINE = 64


class Pool(ABC):
    """The pages of a cache, whose table and arena there are already. ``representatives``: which blocks have them."""

    SUMMARISES: ClassVar[bool] = False
    """Whether storing a block's last row makes its representatives."""
    PLACE_BYTES: ClassVar[int] = 0
    """Of a table of its own, for each page."""

    def __init__(self, cache: KVCache, representatives: Known) -> None:
        self.cache, self.representatives = cache, representatives

    @property
    def representative_bytes(self) -> int:
        """For each page."""
        return self.cache.geometry.representative_bytes

    @abstractmethod
    def layers(self, cold_forms: tuple[str, ...]) -> Sequence[Any]: ...

    @abstractmethod
    def store(self, layer: int, ids: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """k, v [n, kv_heads, head_dim] into ``slots`` of blocks ``ids``, int64 [n]. Raises ValueError unless hot."""

    @abstractmethod
    def summarise(self, ids: Tensor, filled: Tensor) -> Tensor:
        """Make representatives of blocks ``ids``, of which ``filled`` slots count; the ids that have them now."""

    @abstractmethod
    def converted(self, source: Form, target: Form, old: Tensor) -> Tensor:
        """Bytes uint8 [n, page_bytes], where the arena lies, of pages at offsets ``old`` in another form."""

    @abstractmethod
    def read(self, layer: int, ids: Tensor, mark: Mark | None = None) -> tuple[Tensor, Tensor]:
        """See `KVCache.read`."""

    @abstractmethod
    def copy(self, transfer: Transfer) -> int:
        """See `KVCache.copy`."""

    def changed(self, ids: Tensor) -> None:  # noqa: B027
        """The table says something else of these blocks."""

    def sync(self) -> None:  # noqa: B027
        """What has changed is known where the pages are read, before the next kernel runs."""


class Views(NamedTuple):
    """The arena and its tables as arrays, for compiled kernels; made once, they share the tensors' memory.

    A hot page at byte offset o has K in rows o / (4 d) and on, V block_tokens rows later; a cold one likewise in
    `rows_i8` from o / d, and its scales in `floats` from o / 4 + block_tokens * d / 2. `lines` are cache lines.
    """

    rows_f32: npt.NDArray[np.float32]
    rows_i8: npt.NDArray[np.int8]
    floats: npt.NDArray[np.float32]
    page_offset: npt.NDArray[np.int64]
    page_form: npt.NDArray[np.uint8]
    lines: npt.NDArray[np.int8]
    page_lines: npt.NDArray[np.int64]
    """By code: cache lines of a page."""
    page_entries: npt.NDArray[np.int64]
    """By code: entries that the page of a full block holds."""


@dataclass(frozen=True)
class Layer:
    """One layer of a cache whose pages lie in this process's memory."""

    cache: KVCache
    number: int


class HostPool(Pool):
    """`rep_views`: of the representatives; four dimensions, since numba recognises more than five only slowly."""

    representatives: Representatives

    def __init__(self, cache: KVCache) -> None:
        geometry, data = cache.geometry, cache.arena.data
        self.reps = Representatives(geometry, len(cache.ref_counts))
        super().__init__(cache, self.reps)
        self.rows_f32 = data.view(torch.float32).view(-1, geometry.head_dim)
        self.rows_i8 = data.view(torch.int8).view(-1, geometry.head_dim)
        self.floats = data.view(torch.float32)
        sizes = torch.from_numpy(cache.page_sizes[:, 0] // LINE)
        sizes[HOST:] = 0
        entries = torch.zeros(2 * HOST, dtype=torch.int64)
        for code, form in cache.forms.items():
            entries[code] = form.entries(geometry)
        lines = data.view(torch.int8).view(-1, LINE)
        arrays = (self.rows_f32, self.rows_i8, self.floats, cache.page_offset, cache.page_form, lines, sizes, entries)
        self.views = Views(*(tensor.numpy() for tensor in arrays))
        self.rep_views = (self.reps.q.flatten(3).numpy(), self.reps.scale.numpy(), self.reps.known.numpy())
        self._layers = [Layer(cache, number) for number in range(geometry.layers)]

    def layers(self, cold_forms: tuple[str, ...]) -> Sequence[Layer]:
        return self._layers

    def store(self, layer: int, ids: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
        self.store_rows(layer, ids.numpy(), slots.numpy(), k, v)

    def store_rows(self, layer: int, ids: np.ndarray, slots: np.ndarray, k: Tensor, v: Tensor) -> None:
        """As `store`, from arrays."""
        offsets = self.views.page_offset[layer][ids]
        if (self.views.page_form[layer][ids] != HOT).any():
            raise ValueError(f"cache: write to a page that is not hot (layer {layer})")
        dim, tokens = self.cache.geometry.head_dim, self.cache.geometry.block_tokens
        rows = (offsets // (4 * dim) + slots[:, None]).reshape(-1)
        self.views.rows_f32[rows] = k.reshape(-1, dim).numpy()
        self.views.rows_f32[rows + tokens] = v.reshape(-1, dim).numpy()

    def summarise(self, ids: Tensor, filled: Tensor) -> Tensor:
        ids, filled = ids[filled > 0], filled[filled > 0]
        for layer in range(self.cache.geometry.layers if len(ids) else 0):
            for part, count in zip(torch.split(ids, SUMMARISED), torch.split(filled, SUMMARISED), strict=True):
                self.reps.store(part, layer, self.read(layer, part)[0], count)
        return ids

    def converted(self, source: Form, target: Form, old: Tensor) -> Tensor:
        shape, arena = self.cache.geometry, self.cache.arena
        parts = (source.decode(shape, arena.read(source.CODE, part)) for part in old.split(CHUNK))  # type: ignore[no-untyped-call]
        return torch.cat([target.encode(shape, k, v) for k, v in parts])

    def copy(self, transfer: Transfer) -> int:
        code, form, cache = transfer.code, transfer.code % HOST, self.cache
        cache.arena_of(code ^ HOST).write(form, transfer.new, cache.arena_of(code).read(form, transfer.old))
        return len(transfer.old) * cache.arena.page_bytes[form]

    def read(self, layer: int, ids: Tensor, mark: Mark | None = None) -> tuple[Tensor, Tensor]:
        cache, shape = self.cache, self.cache.geometry
        held, offsets = cache.page_form[layer, ids], cache.page_offset[layer, ids]
        hot_pages = self.floats.view(-1, 2, shape.block_tokens, shape.head_dim)
        hot = held == HOT
        if bool(hot.all()):
            both = hot_pages[offsets // shape.hot_page_bytes]
            return both[:, :, 0], both[:, :, 1]
        k = torch.zeros(len(ids), shape.kv_heads, shape.block_tokens, shape.head_dim)
        v = torch.zeros_like(k)
        both = hot_pages[offsets[hot] // shape.hot_page_bytes]
        k[hot], v[hot] = both[:, 0], both[:, 1]
        if mark is not None:
            mark("attend")
        for code in torch.unique(held).tolist():
            if code not in (NONE, HOT, EVICTED):
                mask, form = held == code, cache.forms[code % HOST]
                k[mask], v[mask] = form.decode(shape, cache.arena_of(code).read(code % HOST, offsets[mask]))
        if mark is not None:
            mark("decompress")
        return k, v


def host_pool(cache: KVCache) -> HostPool:
    """The pool of a cache that lies in this process's memory."""
    assert isinstance(cache.pool, HostPool)
    return cache.pool
