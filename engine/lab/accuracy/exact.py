"""Choose blocks by the largest q.k of their own keys instead of what representatives promise: the oracle of selection.

Nothing is saved, since all keys are read to choose; what is read afterwards is as much as before.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.cache import KVCache
from engine.devices.cpu import Host, Role
from engine.forms import EVICTED, NONE
from engine.kernels._base import DecodeBatch, Keep, Kernels, Selection, Traffic
from engine.kernels.oracle import Oracle
from engine.llm import Engine
from engine.timeline import Mark


class Exact(Oracle):
    """The selecting half; evicted pages stay out of reach."""

    NAME = "exact"

    def scores(self, q: Tensor, layer: int, cache: KVCache, ids: Tensor, head: int) -> Tensor:
        keys, _ = cache.read(layer, ids)
        best = torch.einsum("gd,btd->bgt", q, keys[:, head].to(q.dtype)).amax((1, 2))
        held = cache.page_form[layer, ids, head]
        return best.masked_fill((held == EVICTED) | (held == NONE), -torch.inf)


class Around:
    """Kernels around others, which do what these leave as it is."""

    def __init__(self, inner: Kernels) -> None:
        self.inner, self.NAME = inner, inner.NAME

    @property
    def traffic(self) -> Traffic:
        return self.inner.traffic

    def select(self, q: Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep) -> Selection:
        return self.inner.select(q, layer, cache, batch, keep)

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
        return self.inner.attend(q, layer, cache, batch, selection, scale, mark)


def use(engine: Engine) -> None:
    """Let this engine choose exactly from now on."""
    swap_operators(engine, "choose", lambda _: Exact())


def swap_operators(engine: Engine, role: Role, wrap: Callable[[Kernels], Kernels]) -> None:
    """Put others in the place of those that the engine's knobs ask for; before its first step."""
    host, name = engine.device.operators, engine.knobs.operators[role == "read"]
    assert isinstance(host, Host)
    host.made[role, name] = wrap(host.kernels(role, name))
