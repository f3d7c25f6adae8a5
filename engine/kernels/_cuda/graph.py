"""CUDA graphs of a decode step, one for each batch bucket, and the counters that show none is made after warm-up."""

from __future__ import annotations

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


def compiled(*kernels: Any) -> int:
    """How many variants of these Triton kernels this process has compiled or loaded: it must not grow after warm-up."""
    return sum(len(held[0]) for kernel in kernels for held in kernel.device_caches.values())


class StepGraphs:
    """`captures` and `replays` are counters; a step reads and writes only buffers that stay where they are."""

    def __init__(self) -> None:
        self.captures = 0
        self.replays = 0
        self._graphs: dict[object, torch.cuda.CUDAGraph] = {}

    def replay(self, key: object, step: Callable[[], object]) -> None:
        """Run `step` by its graph, capturing it the first time that `key` is seen."""
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._capture(step)
            self._graphs[key] = graph
        graph.replay()
        self.replays += 1

    def _capture(self, step: Callable[[], object]) -> torch.cuda.CUDAGraph:
        stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_RUNS):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        self.captures += 1
        return graph
