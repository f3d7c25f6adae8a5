"""A pool on a device: the bytes and a table of their addresses lie there, the cache's own table stays with the host.

What the host decides about a page reaches the device's table, `place`, by `sync`, before the next kernel runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine import forms as kv_forms
from engine.devices import _plain
from engine.devices._link import Link, send
from engine.forms import HOST, HOT
from engine.geometry import DTYPES
from engine.kernels._cuda.pool import ABSENT, AWAY, PagedPool, cold_code
from engine.pool import Pool
from engine.representatives import Known
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache, Transfer
    from engine.devices._plain import Plain
    from engine.forms._base import Form


class DevicePool(Pool):
    """`place` int32 [layers, kv_heads, blocks] and `reps` [layers, kv_heads, blocks, subs, 1 or 2, d] on the device."""

    SUMMARISES, PLACE_BYTES = True, 4

    def __init__(self, cache: KVCache, operators: Plain) -> None:
        geometry, blocks = cache.geometry, len(cache.ref_counts)
        super().__init__(cache, Known(blocks))
        self.operators, self.device = operators, cache.device
        self.dtype: torch.dtype = getattr(torch, geometry.dtype)
        lead = (geometry.layers, geometry.kv_heads, blocks)
        self.place = torch.full(lead, ABSENT, dtype=torch.int32, device=self.device)
        shape = (*lead, geometry.subs_per_block, geometry.rep_rows, geometry.head_dim)
        self.reps = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self._changed = np.zeros(blocks, dtype=np.bool_)
        self._layers: dict[tuple[str, ...], list[PagedPool]] = {}
        self._link = Link(cache, cache.host) if cache.host is not None else None

    @property
    def representative_bytes(self) -> int:
        shape = self.cache.geometry
        return shape.subs_per_block * shape.rep_rows * shape.head_dim * DTYPES[shape.dtype]

    def layers(self, cold_forms: tuple[str, ...]) -> list[PagedPool]:
        """Every layer as kernels see it that look for pages of these cold forms, and of no others."""
        if cold_forms not in self._layers:
            self._layers[cold_forms] = [self._layer(number, cold_forms) for number in range(self.cache.geometry.layers)]
        return self._layers[cold_forms]

    def _layer(self, number: int, cold_forms: tuple[str, ...]) -> PagedPool:
        shape, data = self.cache.geometry, self.cache.arena.data
        return PagedPool(
            shape,
            data.view(self.dtype).view(-1, 2, shape.block_tokens, shape.head_dim),
            data,
            self.place[number].t(),
            self.reps[number].transpose(0, 1),
            "mean" if shape.rep_rows == 1 else "bounds",
            cold_forms,
            self.cache.arena.slab_bytes,
        )

    def changed(self, ids: Tensor) -> None:
        self._changed[ids.numpy()] = True

    def sync(self) -> None:
        ids = torch.from_numpy(np.flatnonzero(self._changed))
        if len(ids) == 0:
            return
        self._changed[:] = False
        cache = self.cache
        held, offset = cache.page_form[:, ids], cache.page_offset[:, ids]
        code = torch.where(held == HOT, offset // cache.geometry.hot_page_bytes, ABSENT)
        forms = cache.cold_forms()
        pool = self.layers(forms)[0]
        for name in forms:
            there = held == kv_forms.codes()[name]
            code[there] = cold_code(name, pool.numbers(name, offset[there]))
        code = torch.where(held >= HOST, AWAY, code).to(torch.int32).transpose(1, 2).contiguous()
        self.place.index_copy_(2, send(ids, self.device), send(code, self.device))

    def store(self, layer: int, ids: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
        if (self.cache.page_form[layer, ids] != HOT).any():
            raise ValueError(f"cache: write to a page that is not hot (layer {layer})")
        self.sync()
        where = self.device
        self.operators.store(k.to(where), v.to(where), self.layers(())[layer], send(ids, where), send(slots, where))

    def summarise(self, ids: Tensor, filled: Tensor) -> Tensor:
        """Of full blocks only: what is not full lies in the window and needs none."""
        ids = ids[filled == self.cache.geometry.block_tokens]
        if len(ids):
            self.sync()
            self.operators.summarise(self.layers(()), send(ids, self.device))
        return ids

    def copy(self, transfer: Transfer) -> int:
        assert self._link is not None
        return self._link.carry(transfer)

    def read(self, layer: int, ids: Tensor, mark: Mark | None = None) -> tuple[Tensor, Tensor]:
        self.sync()
        cache = self.cache
        held = self.place[layer].t()[ids.to(self.device)]
        k, v, _ = _plain.pages(self.layers(cache.cold_forms())[layer], held)
        codes = cache.page_form[layer, ids.cpu()]
        away = codes >= HOST
        if self._link is not None and bool(away.any()):
            at = away.to(self.device)
            k[at], v[at] = self._link.read(codes[away], cache.page_offset[layer, ids.cpu()][away])
        return k, v

    def converted(self, source: Form, target: Form, old: Tensor) -> Tensor:
        shape = self.cache.geometry
        if source.CODE == HOT:
            hot = send(old // shape.hot_page_bytes, self.device)
            return self.operators.freeze(self.layers(())[0], target.NAME, hot)
        return target.encode(shape, *source.decode(shape, self.cache.arena.read(source.CODE, old)))
