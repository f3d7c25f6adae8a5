"""One decode step over fixed buffers: the model's ``attend``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.devices._base import LENS, Batch, Operators, Reader
from engine.timeline import Mark

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.host_tier import HostTier


@dataclass
class Watch:
    """What the host does in the middle of a step that is not a graph's."""

    careful: bool = False
    """Whether choices are wanted, `Mode.careful`."""
    tier: HostTier | None = None
    wider: Reader | None = None
    """Chooses for the step to come."""
    row: int | None = None
    """The request whose query votes on importance."""
    length: int = 0
    table: Tensor | None = None
    """Its blocks, int64 on the host."""
    choices: list[Tensor] = field(default_factory=list)
    mass: list[Tensor] = field(default_factory=list)


class StepAttend:
    """Stores q's own key and value, chooses, reads. ``mark`` and ``watch`` are None in a graph."""

    def __init__(
        self,
        cache: KVCache,
        operators: Operators,
        pools: Sequence[Any],
        batch: Batch,
        reader: Reader,
        windows: tuple[int, ...],
        mark: Mark | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.cache, self.operators, self.pools, self.windows = cache, operators, pools, windows
        self.batch, self.reader, self.mark, self.watch = batch, reader, mark, watch
        # On a device storing rides in the queue; on the CPU it is the host that does it.
        self._stored = "linear" if cache.device.type != "cpu" else "host"

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [B, q_heads, head_dim], k and v [B, kv_heads, head_dim] → [B, q_heads, head_dim]."""
        pool, mark, watch = self.pools[layer], self.mark, self.watch
        # The CPU's kernels take q as the model gives it: what their graphs are captured for is part of what is shown.
        q = q.contiguous() if self._stored == "linear" else q
        if mark is not None:
            mark("linear")
        self.operators.append(k, v, pool, self.batch)
        if watch is not None and watch.row is not None:
            self._vote(q, pool, watch, watch.row)
        if mark is not None:
            mark(self._stored)
        if self.windows[layer]:
            if watch is not None and watch.careful:
                watch.choices.append(torch.full((len(q), self.cache.geometry.kv_heads, 1), -1))
            return self.reader.windowed(layer, q, self.windows[layer], mark)
        self.reader.select(layer, q)
        if mark is not None:
            mark("select")
        if watch is not None and watch.careful:
            self._fetch(layer, q, watch)
        return self.reader.attend(layer, q, mark)

    def _vote(self, q: Tensor, pool: Any, watch: Watch, row: int) -> None:
        """The attention mass that one request's query gives to each of its full blocks."""
        assert watch.table is not None
        table, start, mine = watch.table.int().to(q.device), watch.length - 1, q[row : row + 1].contiguous()
        _, seen = self.operators.chunk(mine, pool, table, start, 0)
        watch.mass.append(self.operators.observe(mine, seen, pool, table, start, range(start, start + 1), 0))

    def _fetch(self, layer: int, q: Tensor, watch: Watch) -> None:
        """Note what was chosen; bring what of it lies in host memory, and start on what the next step may choose."""
        watch.choices.append(self.reader.chosen())
        if watch.tier is not None:
            watch.tier.fetch(layer, watch.choices[-1])
            if watch.wider is not None:
                watch.wider.select(layer, q)
                watch.tier.prefetch(layer, watch.wider.chosen())
            self.cache.sync()
        if self.mark is not None:
            self.mark("transfer")


def tokens_of(batch: Batch, last: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids and positions int64 [requests]: a token is what row ``source`` of the step before gave, or as told."""
    _, _, _, source, given = batch.numbers.long()
    tokens = torch.where(source >= 0, last[source.clamp_min(0)], given)
    return tokens, (batch.numbers[LENS].long() - 1).clamp_min(0)
