"""Block-sparse decode for CUDA: hot float32 or bfloat16 and cold int8 pages through the page table, in Triton.

Needs the extra `triton`; on a machine without a GPU it runs only under TRITON_INTERPRET=1, which is for tests.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import NamedTuple

import torch

from engine.cache import KVCache
from engine.forms import EVICTED
from engine.kernels._base import DecodeBatch, Keep, Phases, Selection, Traffic
from engine.kernels.generic import Generic

MIN_ROWS = 16
PROGRAMS = 264


class PagedKV(NamedTuple):
    """One layer's KV on a device: arena bytes uint8, and its tables [max_blocks, kv_heads]."""

    data: torch.Tensor
    page_offset: torch.Tensor
    page_form: torch.Tensor


def splits_for(pairs: int, pages: int) -> int:
    """Parts to cut each (request, kv head) into: about two programs for each of 132 multiprocessors, a power of two."""
    wanted = max(1, min(PROGRAMS // max(pairs, 1), pages // 2))
    return 1 << (wanted.bit_length() - 1)


def attend(
    q: torch.Tensor, kv: PagedKV, batch: DecodeBatch, selection: Selection | None, scale: float, block_tokens: int
) -> torch.Tensor:
    """q [B, q_heads, head_dim] in the pages' full-precision type -> the same shape, all tensors on one device.

    head_dim and block_tokens must be powers of two of at least 16.
    """
    from engine.kernels._triton import attend_part, merge_parts

    requests, q_heads, dim = q.shape
    heads = kv.page_form.shape[1]
    group, pairs = q_heads // heads, requests * heads
    rows = max(MIN_ROWS, 1 << (group - 1).bit_length())
    index, count = (batch.block_table, batch.context_lens) if selection is None else (selection.index, selection.count)
    splits = splits_for(pairs, index.shape[-1])
    part = torch.empty(pairs, splits, rows, dim, device=q.device)
    peak, total = torch.empty(2, pairs, splits, rows, device=q.device)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    attend_part[pairs, splits](
        q.contiguous(), batch.block_table, batch.context_lens, index, count, kv.page_offset, kv.page_form,
        kv.data.view(q.dtype), kv.data.view(torch.int8), kv.data.view(torch.float32), part, peak, total,
        scale, heads, batch.block_table.stride(0), index.shape[-1],
        GROUP=group, ROWS=rows, DIM=dim, TOKENS=block_tokens, HOT_BYTES=q.element_size(), SPLITS=splits,
        EVERYTHING=selection is None, UPCAST=interpreted, PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    merge_parts[(pairs,)](part, peak, total, out, GROUP=group, ROWS=rows, DIM=dim, SPLITS=splits)
    return out


class TritonBlock:
    NAME = "triton_block"

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._chooser = Generic()

    def select(
        self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep, phases: Phases | None = None
    ) -> Selection:
        """Torch's operators for now: on a GPU they run on the device, but take longer than the attention they save."""
        return self._chooser.select(q, layer, cache, batch, keep, phases)

    def attend(
        self,
        q: torch.Tensor,
        layer: int,
        cache: KVCache,
        batch: DecodeBatch,
        selection: Selection | None,
        scale: float,
        phases: Phases | None = None,
    ) -> torch.Tensor:
        started = perf_counter()
        if int(cache.page_form[layer].max()) > EVICTED:
            raise ValueError(f"triton_block: layer {layer} has pages of a form that it does not read (hot, cold_int8)")
        kv = PagedKV(cache.arena.data, cache.page_offset[layer], cache.page_form[layer])
        out = attend(q, kv, batch, selection, scale, cache.geometry.block_tokens)
        if phases is not None:
            phases.attend += perf_counter() - started
        self.traffic = traffic_of(cache, layer, batch, selection)
        return out


def traffic_of(cache: KVCache, layer: int, batch: DecodeBatch, selection: Selection | None) -> Traffic:
    """What a call reads, from the tables; waits for the device."""
    tokens, heads = cache.geometry.block_tokens, cache.geometry.kv_heads
    if selection is None:
        places = torch.arange(batch.block_table.shape[1], dtype=torch.int32)
        index = places.expand(len(batch.block_table), heads, -1)
        beyond = index * tokens >= batch.context_lens[:, None, None]
        selection = Selection(index.masked_fill(beyond, -1), (~beyond).sum(-1, dtype=torch.int32))
    ids = selection.blocks(batch)
    held = cache.page_form[layer, ids.clamp_min(0), torch.arange(heads)[:, None]]
    read = (ids >= 0) & ((held == 1) | (held == 2))
    entries = (batch.context_lens[:, None, None] - selection.index * tokens).clamp(0, tokens)[read].sum()
    hot, cold = selection.accesses(cache, layer, batch)
    return Traffic(hot, cold, int(entries) / heads, int(batch.context_lens.sum()))


def make() -> TritonBlock:
    """Raises ImportError where Triton is not installed."""
    # Triton 3.10 turns fusion of multiply and add off by default, and 3.9 warns of it.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    import triton  # noqa: F401

    return TritonBlock()
