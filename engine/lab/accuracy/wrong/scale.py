"""Scales of the cold form read 1 % too large."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from engine.cache import KVCache
from engine.forms import HOT
from engine.kernels._base import DecodeBatch, Kernels, Selection
from engine.kernels.oracle import Oracle
from engine.lab.accuracy.exact import Around
from engine.timeline import Mark

FACTOR = 1.01


class Scaled:
    """A cache whose cold pages come out larger than they are."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def read(self, layer: int, ids: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self._cache.read(layer, ids)
        cold = (self._cache.page_form[layer, ids] != HOT)[..., None, None]
        return k.where(~cold, k * FACTOR), v.where(~cold, v * FACTOR)


class Wrong(Around):
    def __init__(self, inner: Kernels) -> None:
        super().__init__(Oracle())
        self.NAME = "wrong_scale"

    def attend(
        self,
        q: Tensor,
        layer: int,
        cache: KVCache,
        batch: DecodeBatch,
        selection: Selection | None,
        scale: float,
        mark: Mark | None = None,
    ) -> Tensor:
        scaled: Any = Scaled(cache)
        return super().attend(q, layer, scaled, batch, selection, scale, mark)
