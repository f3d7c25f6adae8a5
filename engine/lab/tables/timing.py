# mypy: disable-error-code="no-untyped-call,no-any-return"
"""Time on a CUDA device: medians over replays of a graph whose calls each read another part of memory (a cold L2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch

L2_BYTES = 60 << 20
# What one round of calls must read in all, so that no call finds anything of its own in the L2.
ROUND_BYTES = 8 * L2_BYTES
MOST_SETS = 256


def sets_for(bytes_read: int) -> int:
    """Disjoint sets of inputs to take in turn."""
    return max(2, min(MOST_SETS, -(-ROUND_BYTES // max(bytes_read, 1)))) if bytes_read < 2 << 30 else 1


def replayed(calls: Sequence[Callable[[], object]], *, least: int = 12, replays: int = 9) -> float:
    """Microseconds per call: all of them in one graph, back to back, median over replays; launches are included."""
    rounds = -(-least // len(calls))
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    spent = []
    for _ in range(replays + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        spent.append(start.elapsed_time(end) * 1000 / (rounds * len(calls)))
    graph.reset()
    return median(spent[2:])


def copy_bandwidth() -> float:
    """Bytes read and written per second by a copy of 2 GiB, median of 20."""
    source = torch.empty(1 << 30, dtype=torch.bfloat16, device="cuda").normal_()
    target = torch.empty_like(source)
    spent = []
    for _ in range(23):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        spent.append(start.elapsed_time(end) / 1000)
    return 2 * 2 * source.numel() / median(spent[3:])
