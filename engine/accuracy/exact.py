"""Choose blocks by the largest q.k of their own keys instead of what representatives promise: the oracle of selection.

Nothing is saved, since all keys are read to choose; what is read afterwards is as much as before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache import KVCache
from engine.forms import EVICTED, NONE
from engine.kernels._base import DecodeBatch, Keep, Kernels, Phases, Selection
from engine.kernels.oracle import Oracle
from engine.llm import Engine


class Exact(Oracle):
    """The selecting half; evicted pages stay out of reach."""

    NAME = "exact"

    def scores(self, q: Tensor, layer: int, cache: KVCache, ids: Tensor, head: int) -> Tensor:
        keys, _ = cache.read(layer, ids)
        best = torch.einsum("gd,btd->bgt", q, keys[:, head].to(q.dtype)).amax((1, 2))
        held = cache.page_form[layer, ids, head]
        return best.masked_fill((held == EVICTED) | (held == NONE), -torch.inf)


class Paired:
    """Selects exactly, attends as it did."""

    NAME = "exact"

    def __init__(self, inner: Kernels) -> None:
        self._exact, self._inner = Exact(), inner
        self.traffic = inner.traffic

    def select(
        self, q: Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep, phases: Phases | None = None
    ) -> Selection:
        return self._exact.select(q, layer, cache, batch, keep, phases)

    def attend(
        self,
        q: Tensor,
        layer: int,
        cache: KVCache,
        batch: DecodeBatch,
        selection: Selection | None,
        scale: float,
        phases: Phases | None = None,
    ) -> Tensor:
        out = self._inner.attend(q, layer, cache, batch, selection, scale, phases)
        self.traffic = self._inner.traffic
        return out


def use(engine: Engine) -> None:
    """Let this engine choose exactly from now on."""
    swap_operators(engine, Paired)


def swap_operators(engine: Engine, wrap: type[Paired]) -> None:
    """Put something around the operators that the engine's knobs ask for."""
    inner = engine._operators()
    for names, made in list(engine._kernels.items()):
        if made is inner:
            engine._kernels[names] = wrap(inner)
