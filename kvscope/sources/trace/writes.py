"""Kernels that write new KV into the cache, once a layer: how long a layer's attention takes, and in how many bits.

Names as of vLLM 0.25.0 ``csrc/cache_kernels.cu`` (``reshape_and_cache``, ``concat_and_cache_mla``: the second template
argument is what the cache holds), SGLang 0.5.23 ``sgl-kernel`` (``store_kv_cache``, ``set_mla_kv``), FlashInfer
``page.cuh`` (``AppendPagedKVCache``).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from kvscope.sources.trace.events import KERNEL, Trace

_WRITE = re.compile(r"reshape_and_cache|concat_and_cache|store_kv_?cache|set_(?:mla_)?kv|AppendPagedKV", re.IGNORECASE)
_HELD = re.compile(r"(?:reshape|concat)_and_cache\w*<\s*[^,<>]+,\s*([^,<>]+)\s*,")
_BITS = {
    "unsigned char": 8.0,
    "uint8_t": 8.0,
    "__nv_fp8_e4m3": 8.0,
    "__nv_bfloat16": 16.0,
    "__half": 16.0,
    "half": 16.0,
    "unsigned short": 16.0,
    "uint16_t": 16.0,
    "float": 32.0,
}


@dataclass(frozen=True, slots=True)
class Writes:
    """Starts and durations (µs) of every such kernel in time order; ``bits`` of a stored number where names tell."""

    starts: tuple[float, ...]
    durations: tuple[float, ...]
    bits: float | None

    def within(self, start: float, end: float) -> tuple[float, ...]:
        """Return the durations of the writes that start in a stretch."""
        return self.durations[bisect_left(self.starts, start) : bisect_left(self.starts, end)]


def writes_of(trace: Trace) -> Writes:
    """Find them by name; without one a layer's share of a step is not known."""
    writing = {index for index, name in enumerate(trace.names) if _WRITE.search(name)}
    kernels = (i for i, kind in enumerate(trace.kind) if kind == KERNEL and trace.name[i] in writing)
    found = sorted((trace.start[i], trace.duration[i]) for i in kernels)
    held = {matched[1].strip() for index in writing if (matched := _HELD.search(trace.names[index]))}
    bits = {_BITS[name] for name in held if name in _BITS}
    told = bits.pop() if len(bits) == 1 == len(held) else None
    return Writes(tuple(start for start, _ in found), tuple(taken for _, taken in found), told)
