"""CUDA graphs of a decode step, one for each batch bucket, and the counters that show none is made after warm-up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
WARM_RUNS = 2


def bucket_for(requests: int) -> int:
    """The smallest bucket that holds so many. Raises ValueError beyond the largest."""
    for bucket in BUCKETS:
        if requests <= bucket:
            return bucket
    raise ValueError(f"graphs: {requests} requests, expected at most {BUCKETS[-1]}")


def compiled() -> int:
    """How many variants of this package's Triton kernels the process has compiled or loaded: constant after warm-up."""
    package = __name__.rpartition(".")[0]
    modules = [module for name, module in sys.modules.items() if name.startswith(package + ".")]
    kernels = {id(one): one for module in modules for one in vars(module).values() if hasattr(one, "device_caches")}
    return sum(len(held[0]) for kernel in kernels.values() for held in kernel.device_caches.values())


class StepGraphs:
    """`captures` and `replays` are counters; a step reads and writes only buffers that stay where they are.

    All graphs take their memory from one pool: they never run at once, and what one leaves is read before the next.
    """

    def __init__(self) -> None:
        self.captures = 0
        self.replays = 0
        self._graphs: dict[object, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None

    def forget(self) -> None:
        """Drop all graphs; the counters go on."""
        self._graphs.clear()
        self._pool = None

    def capture(self, key: object, step: Callable[[], object]) -> None:
        """Run `step` a few times, then record it."""
        stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_RUNS):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            step()
        self.captures += 1
        self._graphs[key] = graph

    def replay(self, key: object) -> None:
        self._graphs[key].replay()
        self.replays += 1
