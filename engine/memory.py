"""Memory as a kernel wants it: kept once it is there, and mapped in few large pages where it is large.

By default glibc returns large blocks to the kernel at once, so that every large temporary tensor is paid for again in
page faults: up to nine tenths of the time of a gather, and none of it the operator's own. GPU frameworks have caching
allocators for the same reason.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from contextlib import suppress

import torch

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
NEVER, GROW_BYTES = -1, 64 << 20
HUGE_PAGE = 2 << 20


def keep_freed_memory() -> bool:
    """For the rest of the process; False where the C library is not glibc and nothing was changed."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((TRIM_THRESHOLD, NEVER), (TOP_PAD, GROW_BYTES), (MMAP_MAX, 0))
    return all(mallopt(name, value) == 1 for name, value in settings)


def zeros(size: int) -> torch.Tensor:
    """``size`` bytes uint8, in huge pages where the system has them: every KV page read lies elsewhere, and each small
    page it crosses would cost a walk through the page tables and a stream that the hardware must find anew.
    """
    if size == 0 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(size, dtype=torch.uint8)
    mapped = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel built without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(mapped, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE_PAGE
    return whole[start : start + size]
