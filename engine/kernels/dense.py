"""Attention over everything that is there: the operator of a cache nobody compressed, and the yardstick of the others.

Measured against torch's scaled dot product attention over packed rows (see tests/bench/bench_kernels.py): reading pages
in place wins, since packing alone costs a second pass over the bytes.
"""

from __future__ import annotations

import torch

from engine.cache import KVCache
from engine.forms import EVICTED, NONE
from engine.kernels import _paged
from engine.kernels._base import DecodeBatch, Keep, Selection


class Dense(_paged.InPlace):
    NAME = "dense"

    def select(self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep) -> Selection:
        """Every page that is there, whatever `keep` says."""
        blocks = (batch.context_lens + (cache.geometry.block_tokens - 1)) // cache.geometry.block_tokens
        held = cache.page_form[layer, batch.block_table.long().clamp_min(0)].transpose(1, 2)
        places = torch.arange(batch.block_table.shape[1], dtype=torch.int32)
        there = (held != EVICTED) & (held != NONE) & (places < blocks[:, None, None])
        count = there.sum(-1, dtype=torch.int32)
        beyond = len(places)
        index = places.expand(there.shape).masked_fill(~there, beyond).sort(-1).values
        return Selection(index.masked_fill(index == beyond, -1).contiguous(), count)


def make() -> Dense:
    return Dense()
