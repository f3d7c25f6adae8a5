"""Attention of a prompt chunk on a device: store rows, attend over pages, note where the last queries look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.devices import _plain
from engine.devices._link import send
from engine.forms import HOST
from engine.prefill import SAMPLED_QUERIES

if TYPE_CHECKING:
    from engine.devices._cache import DeviceCache
    from engine.residency import Residency


class ChunkAttend:
    """The model's ``attend`` for tokens [start, end) of one request; call `settle` after the last layer.

    As `engine.prefill.PrefillAttend`, except that cold pages are read as they are. Where some lie in host memory, all
    of the context is put together by plain operators.
    """

    def __init__(
        self,
        cache: DeviceCache,
        residency: Residency,
        table: list[int],
        span: tuple[int, int],
        sample_end: int,
        windows: tuple[int, ...] = (),
    ) -> None:
        self.cache, self.residency = cache, residency
        self.start, self.end = span
        cache.sync()
        shape = cache.geometry
        self.ids = torch.tensor(table[: shape.blocks_for(self.end)])
        positions = torch.arange(self.start, self.end)
        self.blocks, self.slots = self.ids[positions // shape.block_tokens], positions % shape.block_tokens
        self._table = send(self.ids.int(), cache.device)
        self._block, self._slot = send(self.blocks, cache.device), send(self.slots, cache.device)
        last = min(self.end, sample_end)
        self.sampled = range(max(self.start, last - SAMPLED_QUERIES), last)
        self.windows = windows or (0,) * shape.layers
        self.pools = cache.pools(cache.cold_forms())
        self.away = bool((cache.page_form[:, self.ids] >= HOST).any())
        self._mass: list[Tensor] = []

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [N, q_heads, head_dim], k and v [N, kv_heads, head_dim] → [N, q_heads, head_dim]."""
        pool, window = self.pools[layer], self.windows[layer]
        _plain.store(pool, self._block, self._slot, k, v)
        if self.away:
            return self._together(layer, q)
        operators = self.cache.operators
        out, mass_at = operators.chunk(q, pool, self._table, self.start, window)
        if self.sampled:
            rows = slice(self.sampled.start - self.start, self.sampled.stop - self.start)
            full = self.sampled.stop // self.cache.geometry.block_tokens
            self._mass.append(
                operators.observe(q[rows], mass_at[rows], pool, self._table, self.sampled.start, full, window)
            )
        return out

    def _together(self, layer: int, q: Tensor) -> Tensor:
        """Attention where pages lie in host memory: they are read in passing, and the link's time is spent."""
        if self.residency.tier is not None:
            self.residency.tier.stream(layer, self.ids)
        shape, window = self.cache.geometry, self.windows[layer]
        k, v = (part.transpose(0, 1) for part in self.cache.read_dense(layer, self.ids, self.end))
        rows = q.view(len(q), shape.kv_heads, shape.group, -1)
        scores = torch.einsum("nhgd,htd->hgnt", rows, k).float() * shape.head_dim**-0.5
        behind = torch.arange(self.start, self.end, device=q.device)[:, None] - torch.arange(self.end, device=q.device)
        hidden = (behind < 0) | (behind >= (window or self.end))
        absent = self.cache.absent(layer, self.ids, self.end)
        if absent is not None:
            hidden = hidden | absent.T[:, None, None]
        weight = scores.masked_fill(hidden, _plain.HIDDEN).softmax(-1)
        if self.sampled:
            self._mass.append(self._summed(weight))
        return torch.einsum("hgnt,htd->nhgd", weight.to(v.dtype), v).reshape(q.shape)

    def _summed(self, weight: Tensor) -> Tensor:
        """Mass per full block, [blocks, kv_heads], of weights [kv_heads, group, n, stored]."""
        tokens = self.cache.geometry.block_tokens
        full = self.sampled.stop // tokens
        rows = slice(self.sampled.start - self.start, self.sampled.stop - self.start)
        mass = weight[:, :, rows].sum((1, 2))[:, : full * tokens]
        per_block: Tensor = mass.reshape(len(mass), full, tokens).sum(2)
        return per_block.T

    def settle(self) -> None:
        """Book what was stored and add what was observed; waits for the device."""
        shape = self.cache.geometry
        self.cache.wrote(self.blocks.numpy(), self.slots.numpy())
        full = self.ids[self.start // shape.block_tokens : self.end // shape.block_tokens]
        if len(full):
            self.cache.finalise(full)
        if self._mass:
            mass = torch.stack(self._mass).cpu()
            self.residency.importance[:, self.ids[: mass.shape[1]]] += mass


def warm(cache: DeviceCache, forms: tuple[str, ...]) -> None:
    """Compile what prompts of any length will run, and what gives pages one of these cold forms."""
    where = cache.device
    shape, operators = cache.geometry, cache.operators
    table = torch.zeros(1, dtype=torch.int32, device=where)
    q = torch.zeros(1, shape.q_heads, shape.head_dim, dtype=cache.dtype, device=where)
    cache.sync()
    # Pages of each form are met alone at first, and with those of the others later.
    for some in {(), *((form,) for form in forms), forms}:
        pool = cache.pools(some)[0]
        _, mass_at = operators.chunk(q, pool, table, 0, 0)
        operators.observe(q, mass_at, pool, table, 0, 1, 0)
    for form in forms:
        operators.freeze(cache.pools(())[0], form, torch.zeros(1, dtype=torch.int64, device=where))
