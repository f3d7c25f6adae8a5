"""One decode step over fixed buffers: the model's ``attend``, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.devices import _window
from engine.devices._base import LENS, Batch, Mark, Reader, Traffics
from engine.kernels._base import Keep

if TYPE_CHECKING:
    from engine.devices._cache import DeviceCache
    from engine.devices._plain import PlainReader
    from engine.host_tier import HostTier


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
class Watch:
    """What the host does in the middle of a step that is not a graph's."""

    tier: HostTier | None = None
    wider: PlainReader | None = None
    """Chooses for the step to come."""
    row: int | None = None
    """The request whose query votes on importance."""
    length: int = 0
    choices: list[Tensor] = field(default_factory=list)
    mass: list[Tensor] = field(default_factory=list)


class StepAttend:
    """Stores q's own key and value, chooses, reads. ``mark`` and ``watch`` are None in a graph."""

    def __init__(
        self,
        cache: DeviceCache,
        batch: Batch,
        reader: Reader,
        forms: tuple[str, ...],
        windows: tuple[int, ...],
        mark: Mark | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.cache, self.batch, self.reader, self.mark, self.watch = cache, batch, reader, mark, watch
        self.pools, self.windows = cache.pools(forms), windows

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [B, q_heads, head_dim], k and v [B, kv_heads, head_dim] → [B, q_heads, head_dim]."""
        pool, q, mark = self.pools[layer], q.contiguous(), self.mark
        self.cache.operators.append(k, v, pool, self.batch)
        if mark is not None:
            mark("linear")
        if self.watch is not None and self.watch.row is not None:
            self._vote(layer, q, self.watch, self.watch.row)
        if self.windows[layer]:
            out = _window.attend(q, pool, self.batch, self.windows[layer])
            if mark is not None:
                mark("attend")
            return out
        self.reader.select(layer, q)
        if mark is not None:
            mark("select")
        if self.watch is not None:
            self._fetch(layer, q, self.watch)
        return self.reader.attend(layer, q, mark)

    def _vote(self, layer: int, q: Tensor, watch: Watch, row: int) -> None:
        """The attention mass that one request's query gives to each of its full blocks."""
        operators, table, pool = self.cache.operators, self.batch.table[row].contiguous(), self.pools[layer]
        start, mine = watch.length - 1, q[row : row + 1].contiguous()
        _, mass_at = operators.chunk(mine, pool, table, start, 0)
        full = watch.length // self.cache.geometry.block_tokens
        watch.mass.append(operators.observe(mine, mass_at, pool, table, start, full, 0))

    def _fetch(self, layer: int, q: Tensor, watch: Watch) -> None:
        """Note what was chosen; bring what of it lies in host memory, and start on what the next step may choose."""
        chooser = getattr(self.reader, "plain", self.reader)
        if not hasattr(chooser, "spot"):
            return
        watch.choices.append(blocks_at(self.batch, chooser.spot))
        if watch.tier is not None:
            watch.tier.fetch(layer, watch.choices[-1])
            if watch.wider is not None:
                watch.wider.select(layer, q)
                watch.tier.prefetch(layer, blocks_at(self.batch, watch.wider.spot))
            self.cache.sync()
        if self.mark is not None:
            self.mark("transfer")


def blocks_at(batch: Batch, spot: Tensor) -> Tensor:
    """Block ids int64 [requests, kv_heads, n] on the host, of places ``spot`` in the table (-1: none)."""
    table = batch.table.long()[:, None].expand(-1, spot.shape[1], -1)
    return table.gather(2, spot.clamp_min(0)).masked_fill(spot < 0, -1).cpu()


def widened(keep: Keep, prefetch: float) -> Keep:
    return replace(keep, share=min(1.0, keep.share * (1.0 + prefetch)))


def pages_read(
    counts: Tensor, entries: list[int], windows: tuple[int, ...], lens: list[int], tokens: int, heads: int
) -> Traffics:
    """From counts [layers, 1 + forms] of hot pages and each cold form's, which hold ``entries`` tokens where full.

    What a window reads is known from the lengths.
    """
    made = Traffics()
    unfilled = sum(tokens - ((n - 1) % tokens + 1) for n in lens)
    for row, window in zip(counts.tolist(), windows, strict=True):
        hot, cold = row[0], sum(row[1:])
        if window:
            seen = sum(min(n, window) for n in lens)
            hot, cold = heads * sum(-(-n // tokens) - max(0, n - window) // tokens for n in lens), 0
        else:
            held = sum(pages * each for pages, each in zip(row, (tokens, *entries), strict=True))
            seen = held / heads - unfilled
        made.hot.append(hot)
        made.cold.append(cold)
        made.read.append(seen)
        made.total.append(sum(lens))
    return made


def tokens_of(batch: Batch, last: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids and positions int64 [requests]: a token is what row ``source`` of the step before gave, or as told."""
    _, _, _, source, given = batch.numbers.long()
    tokens = torch.where(source >= 0, last[source.clamp_min(0)], given)
    return tokens, (batch.numbers[LENS].long() - 1).clamp_min(0)
