"""Choose blocks by the largest q.k of their own keys instead of what representatives promise: the oracle of selection.

Nothing is saved, since all keys are read to choose; what is read afterwards is as much as before.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.cache import KVCache
from engine.forms import EVICTED, NONE
from engine.kernels._base import Kernels
from engine.kernels._paired import Paired
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


def use(engine: Engine) -> None:
    """Let this engine choose exactly from now on."""
    swap_operators(engine, lambda inner: Paired(Exact(), inner))


def swap_operators(engine: Engine, wrap: Callable[[Kernels], Kernels]) -> None:
    """Put something around the operators that the engine's knobs ask for."""
    inner = engine._operators()
    for names, made in list(engine._kernels.items()):
        if made is inner:
            engine._kernels[names] = wrap(inner)
