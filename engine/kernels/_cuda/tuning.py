"""Which launch for which shape. Chosen by measuring on one H200 (docs/benchmarks.md); elsewhere it only costs speed."""

from __future__ import annotations

from functools import cache

import torch

from engine.kernels._cuda.attend import Launch
from engine.kernels._cuda.pool import reader
from engine.kernels._cuda.select import Choice
from engine.kernels._cuda.worklist import LEAST_SLOTS, parts_for

COLD = (4, 2, 3)


@cache
def processors(device: int | torch.device = 0) -> int:
    """Multiprocessors of a CUDA device; elsewhere, where kernels are interpreted, a few."""
    if isinstance(device, torch.device) and device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def launch_for(pairs: int, pages: int, count: int, forms: tuple[str, ...] = ()) -> Launch:
    """`pages` a pair reads, on a device of `count` multiprocessors: all programs resident at once, in one wave.

    A form's `cuda.py` may say what suits it, LAUNCH: warps, pages in flight, programs to a multiprocessor.
    """
    if forms:
        own = [getattr(reader(form), "LAUNCH", COLD) for form in forms]
        warps, stages, programs = own[0] if len(own) == 1 else COLD
        room = programs * count
        # A little more than there is room for at once, and the last programs run alone: long pairs are cut finer then.
        if room < pairs < 4 * room and pages >= 128:
            room = min(4 * room, max(LEAST_SLOTS, 4 * pairs))
        return Launch(parts_for(pairs, pages, room), warps, 2, stages)
    if pairs >= 3 * count:
        return Launch(1, 4, 2)
    if pages * pairs <= 16 * count:
        return Launch(parts_for(pairs, pages, count), 8, 3)
    programs = count if pages <= 16 else 2 * count
    return Launch(parts_for(pairs, pages, programs), 4, 3)


def choice_for(pairs: int, units: int) -> Choice:
    """`units` sub-blocks to score for each pair: larger tiles only where there are too few programs for small ones.

    Many pairs fill the device by themselves: there, one program for all of a pair's blocks must be a small one.
    """
    ranked = 256 if pairs <= 128 else 128
    if units <= 64:
        return Choice(64, 4, ranked)
    return Choice(256, 8, ranked) if units > 256 and pairs * units <= 1 << 17 else Choice(128, 4, ranked)
