"""The last block is not read where a context fills it to its last token."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache import KVCache
from engine.kernels._base import DecodeBatch, Kernels, Selection
from engine.lab.accuracy.exact import Around
from engine.timeline import Mark


class Wrong(Around):
    def __init__(self, inner: Kernels) -> None:
        super().__init__(inner)
        self.NAME = "wrong_last_block"

    def attend(
        self,
        q: Tensor,
        layer: int,
        cache: KVCache,
        batch: DecodeBatch,
        selection: Selection | None,
        scale: float,
        mark: Mark | None = None,
    ) -> Tensor:
        tokens = cache.geometry.block_tokens
        full = (batch.context_lens % tokens == 0) & (batch.context_lens > tokens)
        if selection is None:
            short = torch.where(full, batch.context_lens - tokens, batch.context_lens)
            batch = DecodeBatch(batch.block_table, short)
        else:
            # The window is always chosen and places ascend: the last one is the block being written.
            count = selection.count - full.to(selection.count.dtype)[:, None]
            places = torch.arange(selection.index.shape[2])
            index = selection.index.masked_fill(places >= count[..., None], -1)
            selection = Selection(index, count)
        return super().attend(q, layer, cache, batch, selection, scale, mark)
