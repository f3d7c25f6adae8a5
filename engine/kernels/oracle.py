"""Select and attend in straightforward torch, a request and head at a time: what other kernels are held against."""

from __future__ import annotations

import torch

from engine.cache import KVCache
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.kernels._base import DecodeBatch, Keep, Selection, Traffic
from engine.pool import host_pool
from engine.timeline import Mark

UNKNOWN = torch.finfo(torch.float32).max


class Oracle:
    NAME = "oracle"

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.traffic = Traffic()

    def scores(self, q: torch.Tensor, layer: int, cache: KVCache, ids: torch.Tensor, head: int) -> torch.Tensor:
        """What q.k may reach over a block for the best of q [group, head_dim]; [blocks]. Unknown: the maximum."""
        reps = host_pool(cache).reps
        rows = reps.q[layer, ids, head].to(self.dtype) * reps.scale[layer, ids, head].to(self.dtype)[..., None, None]
        low, high = rows[:, :, 0, None], rows[:, :, -1, None]
        best = torch.maximum(q * low, q * high).sum(-1).amax((1, 2))
        return best.masked_fill(~cache.representatives.known[ids], UNKNOWN)

    def select(self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep) -> Selection:
        heads = cache.geometry.kv_heads
        groups = q.to(self.dtype).view(len(q), heads, -1, q.shape[-1])
        chosen: list[list[torch.Tensor]] = []
        for b, context in enumerate(batch.context_lens.tolist()):
            blocks = cache.geometry.blocks_for(context)
            ids = batch.block_table[b, :blocks].long()
            rows = []
            for h in range(heads):
                score = self.scores(groups[b, h], layer, cache, ids, h)
                score[: keep.sink_blocks] = torch.inf
                score[keep.window_start(context) :] = torch.inf
                held = cache.page_form[layer, ids, h]
                score[(held == EVICTED) | (held == NONE)] = -torch.inf
                order = score.argsort(descending=True, stable=True)[: keep.blocks_for(context)]
                rows.append(order[score[order] > -torch.inf].sort().values)
            chosen.append(rows)
        widest = max(keep.blocks_for(context) for context in batch.context_lens.tolist())
        index = torch.full((len(q), heads, widest), -1, dtype=torch.int32)
        count = torch.zeros(len(q), heads, dtype=torch.int32)
        for b, rows in enumerate(chosen):
            for h, places in enumerate(rows):
                index[b, h, : len(places)], count[b, h] = places.int(), len(places)
        return Selection(index, count)

    def attend(
        self,
        q: torch.Tensor,
        layer: int,
        cache: KVCache,
        batch: DecodeBatch,
        selection: Selection | None,
        scale: float,
        mark: Mark | None = None,
    ) -> torch.Tensor:
        shape = cache.geometry
        groups = q.to(self.dtype).view(len(q), shape.kv_heads, -1, shape.head_dim)
        out = torch.zeros_like(groups)
        self.traffic = Traffic(entries_total=int(batch.context_lens.sum()))
        for b, context in enumerate(batch.context_lens.tolist()):
            ids = batch.block_table[b, : shape.blocks_for(context)].long()
            pages, absent = cache.read(layer, ids), cache.absent(layer, ids, context)
            for h in range(shape.kv_heads):
                k, v = (page[:, h].reshape(-1, shape.head_dim)[:context].to(self.dtype) for page in pages)
                read = self._readable(cache, layer, ids, b, h, selection)
                tokens = read.repeat_interleave(shape.block_tokens)[:context]
                if absent is not None:
                    tokens = tokens & ~absent[:, h]
                weight = (groups[b, h] @ k[tokens].T * scale).softmax(-1)
                out[b, h] = weight @ v[tokens]
                filled = (context - torch.arange(len(ids)) * shape.block_tokens).clamp_max(shape.block_tokens)
                self._count(cache, cache.page_form[layer, ids[read], h], filled[read])
        if mark is not None:
            mark("attend")
        return out.view(q.shape).float()

    def _readable(
        self, cache: KVCache, layer: int, ids: torch.Tensor, b: int, h: int, selection: Selection | None
    ) -> torch.Tensor:
        """Which blocks of a request are read: bool [blocks]."""
        held = cache.page_form[layer, ids, h]
        there = (held != EVICTED) & (held != NONE) & (held < HOST)
        if selection is None:
            return there
        wanted = torch.zeros_like(there)
        wanted[selection.index[b, h, : int(selection.count[b, h])].long()] = True
        return there & wanted

    def _count(self, cache: KVCache, held: torch.Tensor, filled: torch.Tensor) -> None:
        """Add pages of forms `held` [n] with `filled` [n] tokens each to the traffic."""
        hot = int((held == HOT).sum())
        self.traffic.hot_pages += hot
        self.traffic.cold_pages += len(held) - hot
        most = torch.tensor([cache.forms[int(code)].entries(cache.geometry) for code in held])
        entries = int(torch.minimum(most, filled).sum())
        self.traffic.entries_read += entries / cache.geometry.kv_heads


def make() -> Oracle:
    return Oracle()
