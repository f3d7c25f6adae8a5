"""Which launch for which shape. Chosen by measuring on one H200 (docs/benchmarks.md); elsewhere it only costs speed."""

from __future__ import annotations

from functools import cache

import torch

from engine.kernels._cuda.attend import Launch
from engine.kernels._cuda.select import Choice
from engine.kernels._cuda.worklist import parts_for


@cache
def processors(device: int = 0) -> int:
    """Multiprocessors of a CUDA device."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def launch_for(pairs: int, pages: int, count: int, *, cold: bool = False) -> Launch:
    """`pages` a pair reads, on a device of `count` multiprocessors: all programs resident at once, in one wave."""
    if cold:
        return Launch(parts_for(pairs, pages, 3 * count), 4, 2, 2)
    if pairs >= 3 * count:
        return Launch(1, 4, 2)
    if pages <= 64 and pairs * 16 <= count:
        return Launch(parts_for(pairs, pages, count), 4, 4)
    return Launch(parts_for(pairs, pages, 2 * count), 2, 3)


def choice_for(units: int) -> Choice:
    """`units` sub-blocks to score for each pair."""
    return Choice(64, 4) if units <= 64 else Choice(256, 8)
