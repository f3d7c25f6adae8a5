"""Sparse decode from ready-made torch operators: what a framework offers before anybody writes a kernel for it.

Selected tokens are gathered by index into packed tensors, cold ones dequantised by plain operators, and dense attention
runs over the copies. Two public fallbacks of this make: `naive_nsa` in fla-org/native-sparse-attention (ops/naive.py)
gathers the tokens of the selected blocks by index before it attends, and `QuantizedCache` of huggingface/transformers
(cache_utils.py) dequantises what it stores and concatenates it with the recent tokens on each step. What is slow here is
the operator (copies through memory), not sparsity: `block` reads the same pages.
"""

from __future__ import annotations

from time import perf_counter

import torch

from engine.cache import KVCache
from engine.forms import EVICTED, NONE
from engine.forms.cold_int8 import CODE as COLD
from engine.forms.hot import CODE as HOT
from engine.kernels._base import DecodeBatch, Keep, Phases, Selection, Traffic

UNKNOWN = torch.finfo(torch.float32).max
# Not an infinity: where a head has no page left, the padding is read evenly, and it is zero.
HIDDEN = torch.finfo(torch.float32).min


class Generic:
    NAME = "generic"

    def __init__(self) -> None:
        self.traffic = Traffic()

    def select(
        self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep, phases: Phases | None = None
    ) -> Selection:
        started = perf_counter()
        shape = cache.geometry
        ids = batch.block_table.long().clamp_min(0)
        score = self._bounds(q.view(len(q), shape.kv_heads, shape.group, 1, 1, -1), layer, cache, ids)
        score.masked_fill_(~cache.representatives.known[ids][:, None], UNKNOWN)
        plan = keep.plan(batch.context_lens)
        place = torch.arange(ids.shape[1])
        blocks, wanted, window = (torch.from_numpy(n)[:, None] for n in (plan.blocks, plan.wanted, plan.window))
        score.masked_fill_(((place < keep.sink_blocks) | (place >= window))[:, None], torch.inf)
        held = cache.page_form[layer, ids].transpose(1, 2)
        score.masked_fill_((held == NONE) | (held == EVICTED) | (place >= blocks)[:, None], -torch.inf)
        best = score.topk(plan.widest, dim=-1)
        read = (best.values > -torch.inf) & (torch.arange(plan.widest) < wanted)[:, None]
        index = best.indices.masked_fill(~read, ids.shape[1]).sort(-1).values
        index.masked_fill_(index == ids.shape[1], -1)
        selection = Selection(index.int(), read.sum(-1, dtype=torch.int32))
        if phases is not None:
            phases.select += perf_counter() - started
        return selection

    def _bounds(self, q: torch.Tensor, layer: int, cache: KVCache, ids: torch.Tensor) -> torch.Tensor:
        """Upper bound of q.k per block for the best query of the group, [B, kv_heads, blocks]; q [B, H, G, 1, 1, d]."""
        bounds = (
            cache.rep_q[layer, ids].transpose(1, 2).float()
            * cache.rep_scale[layer, ids].transpose(1, 2)[..., None, None]
        )
        low, high = bounds[:, :, None, :, :, 0], bounds[:, :, None, :, :, 1]
        return torch.maximum(q * low, q * high).sum(-1).amax((2, 4))

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
        shape = cache.geometry
        ids, place = self._blocks(cache, batch, selection)
        at = (layer, ids.clamp_min(0), torch.arange(shape.kv_heads)[:, None])
        held = cache.page_form[at].masked_fill(ids < 0, NONE)
        offsets = cache.page_offset[at][..., None]
        slot = torch.arange(shape.block_tokens)
        seen = place[..., None] * shape.block_tokens + slot < batch.context_lens[:, None, None, None]
        hot, cold = ((held == code)[..., None] & seen for code in (HOT, COLD))
        k = torch.zeros(*seen.shape, shape.head_dim)
        v = torch.zeros_like(k)
        row = (offsets // (4 * shape.head_dim) + slot)[hot]
        k[hot], v[hot] = cache.rows_f32[row], cache.rows_f32[row + shape.block_tokens]
        row = (offsets // shape.head_dim + slot)[cold]
        k8, v8 = cache.rows_i8[row], cache.rows_i8[row + shape.block_tokens]
        first = (offsets // 4 + slot)[cold] + shape.block_tokens * shape.head_dim // 2
        k_scale, v_scale = cache.floats[first], cache.floats[first + shape.block_tokens]
        gathered = perf_counter()
        k[cold], v[cold] = k8.float() * k_scale[:, None], v8.float() * v_scale[:, None]
        decompressed = perf_counter()
        seen = hot | cold
        groups = q.view(len(q), shape.kv_heads, shape.group, shape.head_dim)
        out = self._attention(groups, k.flatten(2, 3), v.flatten(2, 3), seen.flatten(2), scale)
        hot_pages, cold_pages = (int((held == code).sum()) for code in (HOT, COLD))
        self.traffic = Traffic(hot_pages, cold_pages, int(seen.sum()) / shape.kv_heads, int(batch.context_lens.sum()))
        if phases is not None:
            phases.gather += gathered - started
            phases.decompress += decompressed - gathered
            phases.attend += perf_counter() - decompressed
        return out.reshape(q.shape)

    def _blocks(
        self, cache: KVCache, batch: DecodeBatch, selection: Selection | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Block ids and places in the table to read, int64 [B, kv_heads, S], ids -1 where there is none."""
        if selection is not None:
            return selection.blocks(batch), selection.index.long()
        shape = (len(batch.block_table), cache.geometry.kv_heads, batch.block_table.shape[1])
        place = torch.arange(shape[2]).expand(shape)
        return batch.block_table.long()[:, None].expand(shape), place

    def _attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """q [B, H, G, d], k and v [B, H, T, d], seen bool [B, H, T]."""
        score = (q @ k.transpose(-1, -2) * scale).masked_fill(~seen[:, :, None], HIDDEN)
        return score.softmax(-1) @ v


def make() -> Generic:
    return Generic()
