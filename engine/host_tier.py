"""Host memory behind the pool: cold pages nobody chose lately lie there, and are fetched before they are read.

A copy is what it costs on this machine. ``host_link_mb_s`` makes a copy take as long as over a link of that speed; a
recording made with it is labelled by the knob. Copies toward the pool run beside the step where they were foreseen
(``prefetch``: this step's runners-up in the choice), and in its way, as a stall, where they were not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.arena import OutOfBlocks
from engine.forms import EVICTED, HOST, HOT, NONE

if TYPE_CHECKING:
    from engine.cache import KVCache, Transfer
    from engine.knobs import Knobs

AGAIN_STEPS = 16
"""A page fetched again within so many steps of leaving was moved in vain."""


@dataclass(slots=True)
class HostCounts:
    """Cumulative, in pages, bytes and seconds. ``stall_s``: steps stood still; the others count every copy."""

    fetches: int = 0
    offloads: int = 0
    refetches: int = 0
    failures: int = 0
    prefetches: int = 0
    prefetch_hits: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    stall_s: float = 0.0
    load_s: float = 0.0
    store_s: float = 0.0


class HostTier:
    """Pages are (layer, block, kv head). ``last`` int64 [layers, blocks, kv_heads]: the step that chose them last."""

    def __init__(
        self, cache: KVCache, placed: Tensor, counts: HostCounts, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.cache, self.placed, self.counts, self._sleep = cache, placed, counts, sleep
        shape = cache.page_form.shape
        self.last, self.left = torch.zeros(shape, dtype=torch.int64), torch.full(shape, -AGAIN_STEPS - 1)
        self.foreseen = torch.zeros(shape, dtype=torch.bool)
        cache.tables |= {"chosen": self.last, "offloaded": self.left, "foreseen": self.foreseen}
        self.clock = 0
        self.link_mb_s = 0.0
        self._pool = ThreadPoolExecutor(1, "host-link")
        self._flying: list[tuple[Transfer, Future[float]]] = []

    def fetch(self, layer: int, ids: Tensor) -> None:
        """Bring the chosen pages ``ids`` int64 [B, kv_heads, S] (-1 none) of a layer into the pool; the step waits."""
        block, head = self._chosen(ids)
        self.settle(layer)
        self.counts.prefetch_hits += int(self.foreseen[layer, block, head].sum())
        self.foreseen[layer, block, head] = False
        self.last[layer, block, head] = self.clock
        wanted = self.cache.page_form[layer, block, head] >= HOST
        if not bool(wanted.any()):
            return
        started = perf_counter()
        block, head = block[wanted], head[wanted]
        at = (torch.full_like(block, layer), block, head)
        self.counts.refetches += int((self.clock - self.left[at] <= AGAIN_STEPS).sum())
        for transfer in self._begin(at):
            self.counts.load_s += self._carry(transfer)
            self._take_in(transfer)
            self.counts.fetches += len(transfer.old)
        self.counts.stall_s += perf_counter() - started

    def prefetch(self, layer: int, ids: Tensor) -> None:
        """Start bringing pages the next step may choose; the layer's next `fetch` takes them in."""
        self.settle(layer)
        block, head = self._chosen(ids)
        away = self.cache.page_form[layer, block, head] >= HOST
        at = (torch.full_like(block[away], layer), block[away], head[away])
        for transfer in self._begin(at):
            self.counts.prefetches += len(transfer.old)
            self._flying.append((transfer, self._pool.submit(self._carry, transfer)))
        self.foreseen[at] = True

    def settle(self, layer: int | None = None) -> None:
        """Wait for what is under way, in one layer or in all, and take it in; before it, those pages must not move."""
        flying, self._flying = self._flying, []
        for transfer, future in flying:
            if layer is not None and int(transfer.layer[0]) != layer:
                self._flying.append((transfer, future))
                continue
            waiting = perf_counter()
            self.counts.load_s += future.result()
            self.counts.stall_s += perf_counter() - waiting
            self._take_in(transfer)

    def stream(self, layer: int, table: Tensor) -> None:
        """A prompt is about to read the host pages of ``table`` [blocks] in passing: the link's time, and no move."""
        held = self.cache.page_form[layer, table]
        sizes = torch.zeros(2 * HOST, dtype=torch.int64)
        for form, size in self.cache.arena.page_bytes.items():
            sizes[form + HOST] = size
        size = int(sizes[held.long()].sum())
        self.counts.bytes_in += size
        started = perf_counter()
        self._throttle(size, 0.0)
        self.counts.load_s += perf_counter() - started
        self.counts.stall_s += perf_counter() - started

    def after_step(self, knobs: Knobs) -> None:
        """Send the cold pages longest not chosen to the host until ``host_share`` of the cold ones lie there.

        A page chosen within ``demote_after`` steps stays: that is the hysteresis.
        """
        self.link_mb_s = knobs.host_link_mb_s
        self.clock += 1
        form = self.cache.page_form
        live = (form != NONE) & (form != EVICTED) & (form != HOT) & self.placed[None, :, None]
        here, away = live & (form < HOST), live & (form >= HOST)
        surplus = int(here.sum()) - round(float(live.sum()) * (1.0 - knobs.host_share))
        if surplus <= 0 or int(away.sum()) > round(float(live.sum()) * knobs.host_share):
            return
        layer, block, head = (here & (self.clock - self.last > knobs.demote_after)).nonzero(as_tuple=True)
        oldest = self.last[layer, block, head].argsort(stable=True)[:surplus]
        self.offload((layer[oldest], block[oldest], head[oldest]))

    def offload(self, at: tuple[Tensor, Tensor, Tensor]) -> int:
        """Send pages (layer, block, head; int64 [n] each) to the host; how many found room there."""
        moved = 0
        held = self.cache.page_form[at]
        for code in torch.unique(held).tolist():
            part = tuple(index[held == code] for index in at)
            try:
                transfer = self.cache.begin(code, *part)
            except OutOfBlocks:
                self.counts.failures += len(part[0])
                continue
            self.counts.store_s += self._carry(transfer)
            self._take_in(transfer)
            self.left[part] = self.clock
            moved += len(part[0])
        self.counts.offloads += moved
        return moved

    def recall(self, at: tuple[Tensor, Tensor, Tensor]) -> bool:
        """Bring pages back whatever their form; False, and some still away, where the pool has no room."""
        self.settle()
        before = self.counts.failures
        for transfer in self._begin(at):
            self.counts.load_s += self._carry(transfer)
            self._take_in(transfer)
        return self.counts.failures == before

    def close(self) -> None:
        self.settle()
        self._pool.shutdown()

    def _begin(self, at: tuple[Tensor, Tensor, Tensor]) -> list[Transfer]:
        begun, held = [], self.cache.page_form[at]
        for code in torch.unique(held).tolist():
            part = tuple(index[held == code] for index in at)
            try:
                begun.append(self.cache.begin(code, *part))
            except OutOfBlocks:
                self.counts.failures += len(part[0])
        return begun

    def _chosen(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Block and kv head of what is chosen, each page once."""
        heads = torch.arange(ids.shape[1])[None, :, None].expand_as(ids)
        flat = torch.unique(ids[ids >= 0] * ids.shape[1] + heads[ids >= 0])
        return flat // ids.shape[1], flat % ids.shape[1]

    def _carry(self, transfer: Transfer) -> float:
        """Copy, as slowly as the link is said to be; seconds."""
        started = perf_counter()
        size = self.cache.copy(transfer)
        self._throttle(size, perf_counter() - started)
        return perf_counter() - started

    def _take_in(self, transfer: Transfer) -> None:
        size = len(transfer.old) * self.cache.arena.page_bytes[transfer.code % HOST]
        self.counts.bytes_in += size if transfer.code >= HOST else 0
        self.counts.bytes_out += size if transfer.code < HOST else 0
        self.cache.commit(transfer)

    def _throttle(self, size: int, spent_s: float) -> None:
        if self.link_mb_s > 0:
            self._sleep(max(0.0, size / (self.link_mb_s * 1e6) - spent_s))
