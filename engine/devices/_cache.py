"""The KV cache with its pages on a device: books and tables stay with the host, bytes and their addresses lie there.

What the host decides about a page (`page_form`, `page_offset`) reaches the device's own table, `place`, by `sync`,
before the next kernel runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine import forms as kv_forms
from engine.arena import OutOfBlocks
from engine.cache import Entries, KVCache
from engine.devices._link import Link, send
from engine.forms import HOST, HOT
from engine.geometry import DTYPES, KVGeometry
from engine.kernels._cuda.pool import ABSENT, AWAY, PagedPool, cold_code
from engine.pages import Transfer, count_moved, flat_index
from engine.representatives import Known

if TYPE_CHECKING:
    from engine.devices._base import Operators
    from engine.kernels._base import Phases

PART = 8192
"""Pages changed at a time: so many bytes beside the pool, and no more, does a change of form need."""


class DeviceCache(KVCache):
    """`place` int32 [layers, kv_heads, blocks] and `reps` [layers, kv_heads, blocks, subs, 1 or 2, d] on the device."""

    def __init__(
        self,
        geometry: KVGeometry,
        pool_bytes: int,
        max_blocks: int,
        split: Mapping[str, float] | None = None,
        *,
        device: torch.device,
        operators: Operators,
        host_bytes: int = 0,
        contiguous: bool = False,
    ) -> None:
        super().__init__(
            geometry, pool_bytes, max_blocks, split, host_bytes=host_bytes, contiguous=contiguous, device=device
        )
        self.device, self.operators = device, operators
        self.dtype: torch.dtype = getattr(torch, geometry.dtype)
        lead = (geometry.layers, geometry.kv_heads, max_blocks)
        self.place = torch.full(lead, ABSENT, dtype=torch.int32, device=device)
        shape = (*lead, geometry.subs_per_block, geometry.rep_rows, geometry.head_dim)
        self.reps = torch.zeros(shape, dtype=self.dtype, device=device)
        self._changed = np.zeros(max_blocks, dtype=np.bool_)
        self._pools: dict[tuple[str, ...], list[PagedPool]] = {}
        self._link = Link(self, self.host) if self.host is not None else None

    def _represent(self, max_blocks: int) -> Known:
        return Known(max_blocks)

    def pools(self, forms: tuple[str, ...]) -> list[PagedPool]:
        """Every layer as kernels see it that look for pages of these cold forms, and of no others."""
        if forms not in self._pools:
            self._pools[forms] = [self._pool(layer, forms) for layer in range(self.geometry.layers)]
        return self._pools[forms]

    def cold_forms(self) -> tuple[str, ...]:
        """Cold forms of which there are pages now, here or in host memory."""
        live = self.page_counts[:, :HOST].sum(0) + self.page_counts[:, HOST:].sum(0)
        return tuple(form.NAME for code, form in self.forms.items() if code != HOT and live[code])

    def _pool(self, layer: int, forms: tuple[str, ...]) -> PagedPool:
        shape, data = self.geometry, self.arena.data
        return PagedPool(
            shape,
            data.view(self.dtype).view(-1, 2, shape.block_tokens, shape.head_dim),
            data,
            self.place[layer].t(),
            self.reps[layer].transpose(0, 1),
            "mean" if shape.rep_rows == 1 else "bounds",
            forms,
            self.arena.slab_bytes,
        )

    def sync(self) -> None:
        """Tell the device where the pages lie whose form or address has changed since the last time."""
        ids = torch.from_numpy(np.flatnonzero(self._changed))
        if len(ids) == 0:
            return
        self._changed[:] = False
        held, offset = self.page_form[:, ids], self.page_offset[:, ids]
        code = torch.where(held == HOT, offset // self.geometry.hot_page_bytes, ABSENT)
        forms = self.cold_forms()
        pool = self.pools(forms)[0]
        for name in forms:
            there = held == kv_forms.codes()[name]
            code[there] = cold_code(name, pool.numbers(name, offset[there]))
        code = torch.where(held >= HOST, AWAY, code).to(torch.int32).transpose(1, 2).contiguous()
        self.place.index_copy_(2, send(ids, self.device), send(code, self.device))

    def wrote(self, ids: np.ndarray, slots: np.ndarray) -> None:
        """Rows were stored in all layers: representatives are there for blocks that became full, by the kernel."""
        self.representatives.forget(ids)
        self.representatives.learn(torch.from_numpy(ids[slots == self.geometry.block_tokens - 1]))
        self.blocks.fill(ids, slots)

    def finalise(self, block_ids: Sequence[int] | torch.Tensor, filled: torch.Tensor | None = None) -> None:
        """Representatives of full hot blocks, all layers; what is not full lies in the window and needs none."""
        ids = torch.as_tensor(block_ids, dtype=torch.int64)
        if filled is not None:
            ids = ids[filled == self.geometry.block_tokens]
        if len(ids):
            self.sync()
            self.operators.summarise(self.pools(()), send(ids, self.device))
            self.representatives.learn(ids)

    def place_hot(self, ids: list[int]) -> None:
        super().place_hot(ids)
        self._changed[ids] = True

    def commit(self, transfer: Transfer) -> None:
        super().commit(transfer)
        heads, blocks = self.geometry.kv_heads, self.page_form.shape[1]
        self._changed[(transfer.flat // heads % blocks).numpy()] = True

    def copy(self, transfer: Transfer) -> int:
        assert self._link is not None
        return self._link.carry(transfer)

    def evict(self, layer_idx: torch.Tensor, block_idx: torch.Tensor, head_idx: torch.Tensor) -> int:
        self._changed[block_idx.numpy()] = True
        return super().evict(layer_idx, block_idx, head_idx)

    def read(self, layer: int, ids: torch.Tensor, phases: Phases | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v on the device at full precision, [n, kv_heads, block_tokens, head_dim]; zeros where there is no page."""
        from engine.devices import _plain

        self.sync()
        held = self.place[layer].t()[ids.to(self.device)]
        k, v, _ = _plain.pages(self.pools(self.cold_forms())[layer], held)
        away = self.page_form[layer, ids] >= HOST
        if self._link is not None and bool(away.any()):
            at = away.to(self.device)
            k[at], v[at] = self._link.read(self.page_form[layer, ids][away], self.page_offset[layer, ids][away])
        return k, v

    def absent(self, layer: int, block_table: torch.Tensor, context_len: int) -> torch.Tensor | None:
        gone = super().absent(layer, block_table.cpu(), context_len)
        return None if gone is None else gone.to(self.device)

    def entries_by_layer(self) -> Entries:
        """As counted page by page, from the counts: a block that is not full is hot in all of its pages."""
        tokens, heads = self.geometry.block_tokens, self.geometry.kv_heads
        filled = self.blocks.filled[self.blocks.live_ids()]
        short = int((tokens - filled).sum())
        live = self.page_counts[:, :HOST] + self.page_counts[:, HOST:]
        cold = np.zeros(len(live))
        for code, form in self.forms.items():
            if code != HOT:
                cold += live[:, code] * form.entries(self.geometry) / heads
        return Entries((live[:, HOT] * tokens / heads - short).tolist(), cold.tolist())

    def _beside_bytes(self) -> int:
        """As the host's tables, the device's own, and representatives at full precision."""
        shape = self.geometry
        reps = shape.subs_per_block * shape.rep_rows * shape.head_dim * DTYPES[shape.dtype]
        known = self.representatives.count * shape.representative_bytes
        own = self.blocks.live * self.place.element_size() + self.representatives.count * reps
        return super()._beside_bytes() + (own - known) * shape.pages_per_block

    def _move(self, source: int, target: int, layer: torch.Tensor, block: torch.Tensor, head: torch.Tensor) -> int:
        flat, n = flat_index(self.page_form, layer, block, head), len(layer)
        if n == 0:
            return 0
        if (self.page_form.view(-1)[flat] != source).any():
            raise ValueError(f"cache: expected only {self.forms[source].NAME} pages to make {self.forms[target].NAME}")
        if not self.arena.can_exchange(source, self.page_offset.view(-1)[flat], target, n):
            raise OutOfBlocks(f"no room for {n} {self.forms[target].NAME} pages")
        self._changed[block.numpy()] = True
        old = self.page_offset.view(-1)[flat]
        for i in range(0, n, PART):
            pages = self._converted(source, target, old[i : i + PART])
            self.arena.free(source, old[i : i + PART])
            new = self.arena.allocate(target, len(pages))
            self.arena.write(target, new, pages)
            self.page_offset.view(-1)[flat[i : i + PART]] = new
            self.page_form.view(-1)[flat[i : i + PART]] = target
            count_moved(self.page_counts, layer[i : i + PART], source, target)
        return n * self.arena.page_bytes[target]

    def _converted(self, source: int, target: int, old: torch.Tensor) -> torch.Tensor:
        """Bytes uint8 [n, page_bytes] on the device of pages in their new form."""
        first, second = self.forms[source], self.forms[target]
        if source == HOT:
            hot = send(old // self.geometry.hot_page_bytes, self.device)
            return self.operators.freeze(self.pools(())[0], second.NAME, hot)
        return second.encode(self.geometry, *first.decode(self.geometry, self.arena.read(source, old)))
