"""Make the C allocator keep the memory that tensors give back, as the caching allocators of GPU frameworks do.

By default glibc returns large blocks to the kernel at once, so that every large temporary tensor is paid for again in
page faults: up to nine tenths of the time of a gather, and none of it the operator's own.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
NEVER, GROW_BYTES = -1, 64 << 20


def keep_freed_memory() -> bool:
    """For the rest of the process; False where the C library is not glibc and nothing was changed."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((TRIM_THRESHOLD, NEVER), (TOP_PAD, GROW_BYTES), (MMAP_MAX, 0))
    return all(mallopt(name, value) == 1 for name, value in settings)
