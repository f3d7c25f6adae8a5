"""`generic` with its attention captured as a graph for the exact shapes it meets, as graph compilers do by default.

A dynamic structure changes those shapes whenever a context crosses a block or a request comes or goes, and each new
one is captured anew while everybody waits (§5.3). With `structure` static the number of blocks is padded to one width,
so that only the number of requests is left to differ. ``compiles`` counts captures, ``compile_s`` the seconds of the
calls they happened in; the graph runs as captured, which is what recompilation costs at the least: a code generator
would take longer still.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from engine.cache import KVCache
from engine.kernels._base import DecodeBatch, Keep, Selection
from engine.kernels.generic import Generic

MOST_SHAPES = 100_000
"""Beyond this torch would silently stop capturing."""


class Compiled(Generic):
    NAME = "compiled"

    def __init__(self) -> None:
        super().__init__()
        self.compiles, self.compile_s = 0, 0.0
        torch._dynamo.config.recompile_limit = MOST_SHAPES
        torch._dynamo.config.accumulated_recompile_limit = MOST_SHAPES
        self._graph: Callable[..., torch.Tensor] = torch.compile(
            super()._attention, backend=self._captured, dynamic=False, fullgraph=True
        )

    def select(self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep) -> Selection:
        chosen = super().select(q, layer, cache, batch, keep)
        missing = keep.fixed - chosen.index.shape[-1]
        if missing > 0:
            chosen.index = torch.nn.functional.pad(chosen.index, (0, missing), value=-1)
        return chosen

    def _attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, read: torch.Tensor, scale: float
    ) -> torch.Tensor:
        before, started = self.compiles, perf_counter()
        out = self._graph(q, k, v, read, scale)
        if self.compiles != before:
            self.compile_s += perf_counter() - started
        return out

    def _captured(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.compiles += 1
        return graph.forward


def make() -> Compiled:
    return Compiled()
