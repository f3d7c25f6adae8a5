"""Attention of one new token per request: store its KV, choose what to read, read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine import window
from engine.kernels._base import DecodeBatch, Keep, Kernels, Phases, Traffic

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.host_tier import HostTier
    from engine.observer import Observer
    from engine.request import Request


class DecodeAttend:
    """The model's ``attend`` for a decode batch. Afterwards ``hot``, ``cold``, ``read`` and ``total`` tell per layer
    how many pages were read in each form and how many entries of how many (tokens, mean over kv heads).
    """

    def __init__(
        self,
        cache: KVCache,
        kernels: Kernels,
        keep: Keep | None,
        requests: Sequence[Request],
        phases: Phases | None,
        windows: tuple[int, ...] = (),
    ) -> None:
        self.cache, self.kernels, self.keep, self.phases = cache, kernels, keep, phases
        longest = max(request.length for request in requests)
        # A window that reaches back to every first token is no window.
        self.windows = [seen if seen < longest else 0 for seen in windows] or [0] * cache.geometry.layers
        tokens = cache.geometry.block_tokens
        positions = torch.tensor([request.length - 1 for request in requests])
        width = cache.geometry.blocks_for(longest)
        table = torch.full((len(requests), width), -1, dtype=torch.int32)
        for row, request in enumerate(requests):
            used = request.block_table[: cache.geometry.blocks_for(request.length)]
            table[row, : len(used)] = torch.tensor(used, dtype=torch.int32)
        self.batch = DecodeBatch(table, (positions + 1).to(torch.int32))
        self.block_ids = table.long().gather(1, (positions // tokens)[:, None])[:, 0]
        self.slots = positions % tokens
        self.hot, self.cold = [0] * cache.geometry.layers, [0] * cache.geometry.layers
        self.read, self.total = [0.0] * cache.geometry.layers, [0.0] * cache.geometry.layers
        self.seconds = 0.0
        self.choices: list[Tensor] = []
        self.tier: HostTier | None = None
        self.prefetch = 0.0
        self._observer: Observer | None = None
        self._row: int | None = None

    def observe(self, observer: Observer) -> None:
        """Let decode's own queries vote on importance, in the steps that the observer picks."""
        self._observer, self._row = observer, observer.next_row(len(self.batch.context_lens))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [B, q_heads, head_dim], k and v [B, kv_heads, head_dim] → [B, q_heads, head_dim]."""
        started = perf_counter() if self.phases is not None else 0.0
        self.cache.write(layer, self.block_ids, self.slots, k, v)
        if self._observer is not None and self._row is not None:
            self._observer.observe(layer, q, self.batch, self._row)
        out, traffic = self._windowed(layer, q) if self.windows[layer] else self._paged(layer, q)
        self.hot[layer], self.cold[layer] = traffic.hot_pages, traffic.cold_pages
        self.read[layer], self.total[layer] = traffic.entries_read, traffic.entries_total
        if self.phases is not None:
            self.seconds += perf_counter() - started
        return out

    def _paged(self, layer: int, q: Tensor) -> tuple[Tensor, Traffic]:
        selection = None
        if self.keep is not None:
            selection = self.kernels.select(q, layer, self.cache, self.batch, self.keep, self.phases)
            self.choices.append(selection.blocks(self.batch))
        if self.tier is not None:
            self._fetch(layer, q, self.tier)
        scale = self.cache.geometry.head_dim**-0.5
        out = self.kernels.attend(q, layer, self.cache, self.batch, selection, scale, self.phases)
        return out, self.kernels.traffic

    def _fetch(self, layer: int, q: Tensor, tier: HostTier) -> None:
        """Bring what is about to be read from the host; start on what this step all but chose, for the next one."""
        started = perf_counter()
        heads = self.cache.geometry.kv_heads
        everything = self.batch.block_table.long()[:, None].expand(-1, heads, -1)
        tier.fetch(layer, self.choices[-1] if self.keep is not None else everything)
        if self.phases is not None:
            self.phases.transfer += perf_counter() - started
        if self.keep is not None and self.prefetch > 0.0:
            wider = replace(self.keep, share=min(1.0, self.keep.share * (1.0 + self.prefetch)))
            chosen = self.kernels.select(q, layer, self.cache, self.batch, wider, self.phases)
            tier.prefetch(layer, chosen.blocks(self.batch))

    def _windowed(self, layer: int, q: Tensor) -> tuple[Tensor, Traffic]:
        if self.keep is not None:
            self.choices.append(torch.full((len(q), self.cache.geometry.kv_heads, 1), -1))
        return window.attend(q, layer, self.cache, self.batch, self.windows[layer], self.phases)
