"""One set of kernels chooses, another reads: to see what each costs."""

from __future__ import annotations

import torch

from engine.cache import KVCache
from engine.kernels._base import DecodeBatch, Keep, Kernels, Phases, Selection, Traffic


class Paired:
    def __init__(self, selector: Kernels, reader: Kernels) -> None:
        self.NAME = reader.NAME
        self.traffic = Traffic()
        self._selector, self._reader = selector, reader

    def select(
        self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep, phases: Phases | None = None
    ) -> Selection:
        return self._selector.select(q, layer, cache, batch, keep, phases)

    def attend(
        self,
        q: torch.Tensor,
        layer: int,
        cache: KVCache,
        batch: DecodeBatch,
        selection: Selection | None,
        scale: float,
        phases: Phases | None = None,
    ) -> torch.Tensor:
        out = self._reader.attend(q, layer, cache, batch, selection, scale, phases)
        self.traffic = self._reader.traffic
        return out
