"""Attention of a prompt chunk: store rows, attend over pages, note where the last queries look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.devices._base import Operators
from engine.devices._link import send
from engine.devices._together import Together
from engine.forms import HOST
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.residency import Residency

SAMPLED_QUERIES = 16


class ChunkAttend:
    """The model's ``attend`` for tokens [start, end) of one request; call `settle` after the last layer.

    Attention is exact over all stored entries. Importance is sampled from the last queries of the chunk before
    ``sample_end``: where that is the end of the full prompt blocks, a question shorter than a block that follows a
    document never votes on what is kept.
    """

    def __init__(
        self,
        residency: Residency,
        operators: Operators,
        table: list[int],
        span: tuple[int, int],
        sample_end: int,
        windows: tuple[int, ...] = (),
        mark: Mark | None = None,
    ) -> None:
        self.residency, self.operators, self.mark = residency, operators, mark
        self.cache = cache = residency.cache
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
        pool, window, operators = self.pools[layer], self.windows[layer], self.operators
        operators.store(k, v, pool, self._block, self._slot)
        if self.away:
            return self._in_passing(layer, q)
        out, seen = operators.chunk(q, pool, self._table, self.start, window, self.mark)
        if self.sampled:
            self._mass.append(operators.observe(q, seen, pool, self._table, self.start, self.sampled, window))
        return out

    def _in_passing(self, layer: int, q: Tensor) -> Tensor:
        """Attention where pages lie in host memory: they are read there, and the link's time is spent."""
        if self.residency.tier is not None:
            self.residency.tier.stream(layer, self.ids)
        together, window = Together(self.cache, layer, self.ids, self.end, self.mark), self.windows[layer]
        if self.sampled:
            rows = slice(self.sampled.start - self.start, self.sampled.stop - self.start)
            self._mass.append(together.mass(q[rows], self.sampled.start, window))
        return together.attend(q, self.start, window)

    def settle(self) -> None:
        """Book what was stored and add what was observed; waits for the device."""
        self.cache.wrote(self.blocks.numpy(), self.slots.numpy(), summarised=False)
        if self._mass:
            mass = torch.stack(self._mass).cpu()
            self.residency.importance[:, self.ids[: mass.shape[1]]] += mass
