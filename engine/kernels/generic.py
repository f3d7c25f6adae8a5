"""Sparse decode from ready-made torch operators: what a framework offers before anybody writes a kernel for it.

Selected tokens are gathered by index into packed tensors, cold ones dequantised by plain operators, and dense attention
runs over the copies; pages of the other cold forms are gathered whole and turned back into rows. Two public fallbacks
of this make: `naive_nsa` in fla-org/native-sparse-attention (ops/naive.py) gathers the tokens of the selected blocks by
index before it attends, and `QuantizedCache` of huggingface/transformers (cache_utils.py) dequantises what it stores
and concatenates it with the recent tokens on each step. What is slow here is the operator (copies through memory), not
sparsity: `block` reads the same pages.
"""

from __future__ import annotations

import torch

from engine import forms
from engine.cache import KVCache
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.kernels._base import DecodeBatch, Keep, Selection, Traffic
from engine.pool import host_pool
from engine.timeline import Mark

UNKNOWN = torch.finfo(torch.float32).max
# Not an infinity: where a head has no page left, the padding is read evenly, and it is zero.
HIDDEN = torch.finfo(torch.float32).min
COLD = forms.codes()["cold_int8"]


class Generic:
    NAME = "generic"

    def __init__(self) -> None:
        self.traffic = Traffic()

    def select(self, q: torch.Tensor, layer: int, cache: KVCache, batch: DecodeBatch, keep: Keep) -> Selection:
        shape = cache.geometry
        ids = batch.block_table.long().clamp_min(0)
        score = self._bounds(q.reshape(len(q), shape.kv_heads, shape.group, -1), layer, cache, ids)
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
        return Selection(index.int(), read.sum(-1, dtype=torch.int32))

    def _bounds(self, q: torch.Tensor, layer: int, cache: KVCache, ids: torch.Tensor) -> torch.Tensor:
        """What q.k may reach per block for the best query of the group, [B, kv_heads, blocks]; q [B, H, G, d].

        The sum over d of max(q * low, q * high) is one product, since a negative q takes the lower bound.
        """
        at = (layer, ids[:, None], torch.arange(q.shape[1])[:, None])
        reps = host_pool(cache).reps
        rows = reps.q[at].float().flatten(-2).flatten(2, 3)
        if cache.geometry.rep_rows == 2:
            q = torch.cat((q.clamp_max(0), q.clamp_min(0)), -1)
        score = q @ rows.transpose(-1, -2) * reps.scale[at].flatten(2)[:, :, None]
        return score.view(*score.shape[:3], ids.shape[1], -1).amax((2, 4))

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
        ids, place = self._blocks(cache, batch, selection)
        at = (layer, ids.clamp_min(0), torch.arange(shape.kv_heads)[:, None])
        beyond = place * shape.block_tokens >= batch.context_lens[:, None, None]
        held = cache.page_form[at].masked_fill((ids < 0) | beyond, NONE)
        slot = torch.arange(shape.block_tokens)
        offset = cache.page_offset[at][..., None]
        there = place[..., None] * shape.block_tokens + slot < batch.context_lens[:, None, None, None]
        hot, cold = (((held == code)[..., None] & there).flatten().nonzero()[:, 0] for code in (HOT, COLD))
        k = torch.zeros(there.numel(), shape.head_dim)
        v = torch.zeros_like(k)
        row = (offset // (4 * shape.head_dim) + slot).flatten()[hot]
        rows = host_pool(cache).rows_f32
        k[hot], v[hot] = rows[row], rows[row + shape.block_tokens]
        k8, v8, k_scale, v_scale = self._cold_rows(cache, offset, slot, cold)
        others = self._other_pages(cache, held, offset)
        if mark is not None:
            mark("gather")
        k[cold], v[cold] = k8.float() * k_scale, v8.float() * v_scale
        for code, mask, pages in others:
            k.view(*there.shape, -1)[mask], v.view(*there.shape, -1)[mask] = cache.forms[code].decode(shape, pages)
        if mark is not None:
            mark("decompress")
        read = there & ((held != NONE) & (held != EVICTED) & (held < HOST))[..., None]
        for code, mask, pages in others:
            if cache.lacks_tokens(code):
                read[mask] &= cache.forms[code].kept(shape, pages)
        out = self._attention(q, k.view(*there.shape, -1), v.view(*there.shape, -1), read, scale)
        self.traffic = self._traffic(cache, held, read, int(batch.context_lens.sum()))
        if mark is not None:
            mark("attend")
        return out

    def _other_pages(
        self, cache: KVCache, held: torch.Tensor, offset: torch.Tensor
    ) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
        """Code, mask [B, kv_heads, S] and bytes of the pages that are neither hot nor int8 rows."""
        found = []
        if (
            len(cache.forms) > 2
            and cache.page_counts[:, [code for code in cache.forms if code not in (HOT, COLD)]].any()
        ):
            for code in cache.forms:
                if code not in (HOT, COLD) and bool((mask := held == code).any()):
                    found.append((code, mask, cache.arena.read(code, offset[..., 0][mask])))
        return found

    def _traffic(self, cache: KVCache, held: torch.Tensor, read: torch.Tensor, total: int) -> Traffic:
        hot = int((held == HOT).sum())
        pages = int(read.any(-1).sum())
        entries = int(read.sum())
        for code, form in cache.forms.items():
            if form.entries(cache.geometry) == 1:
                merged = held == code
                entries += int(merged.sum()) - int(read[merged].sum())
        return Traffic(hot, pages - hot, entries / cache.geometry.kv_heads, total)

    def _cold_rows(
        self, cache: KVCache, offset: torch.Tensor, slot: torch.Tensor, cold: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Int8 k, v [n, d] and their scales [n, 1] of tokens `cold` [n], flat in offset [..., 1] with slot [tokens]."""
        tokens, dim = cache.geometry.block_tokens, cache.geometry.head_dim
        row = (offset // dim + slot).flatten()[cold]
        first = (offset // 4 + slot).flatten()[cold] + tokens * dim // 2
        pool = host_pool(cache)
        k_scale, v_scale = pool.floats[first, None], pool.floats[first + tokens, None]
        return pool.rows_i8[row], pool.rows_i8[row + tokens], k_scale, v_scale

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
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, read: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """q [B, q_heads, d], k and v [B, H, S, tokens, d], read bool [B, H, S, tokens] -> [B, q_heads, d]."""
        groups = q.reshape(*k.shape[:2], -1, q.shape[-1])
        score = groups @ k.flatten(2, 3).transpose(-1, -2) * scale
        score = score.masked_fill(~read.flatten(2)[:, :, None], HIDDEN)
        return (score.softmax(-1) @ v.flatten(2, 3)).reshape(q.shape)


def make() -> Generic:
    return Generic()
