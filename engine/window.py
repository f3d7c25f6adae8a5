"""Decode attention of a layer that sees only its newest tokens (Mistral and others): exact, whatever the policy.

A window is short, so its pages are read whole and attended to with plain operations, one request after another.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms.hot import CODE as HOT
from engine.kernels._base import DecodeBatch, Phases, Traffic

if TYPE_CHECKING:
    from engine.cache import KVCache


def attend(
    q: Tensor, layer: int, cache: KVCache, batch: DecodeBatch, window: int, phases: Phases | None
) -> tuple[Tensor, Traffic]:
    """q [B, q_heads, head_dim] over the last ``window`` tokens of each context → [B, q_heads, head_dim]."""
    started, before = perf_counter(), phases.decompress if phases is not None else 0.0
    shape, traffic = cache.geometry, Traffic()
    rows = q.view(len(q), shape.kv_heads, shape.group, shape.head_dim)
    out = torch.empty_like(rows)
    for row, length in enumerate(batch.context_lens.tolist()):
        first = max(0, length - window)
        skipped = first // shape.block_tokens
        ids = batch.block_table[row, skipped : shape.blocks_for(length)].long()
        inside, held = slice(first - skipped * shape.block_tokens, None), length - skipped * shape.block_tokens
        keys, values = (part[inside] for part in cache.read_dense(layer, ids, held, phases))
        scores = torch.einsum("hgd,thd->hgt", rows[row], keys) * shape.head_dim**-0.5
        absent = cache.absent(layer, ids, held)
        if absent is not None:
            scores.masked_fill_(absent[inside].T[:, None], -torch.inf)
        out[row] = torch.einsum("hgt,thd->hgd", scores.softmax(-1), values)
        hot = int((cache.page_form[layer, ids] == HOT).sum())
        traffic.hot_pages += hot
        traffic.cold_pages += len(ids) * shape.kv_heads - hot
        traffic.entries_read += length - first
        traffic.entries_total += length
    if phases is not None:
        phases.attend += perf_counter() - started - (phases.decompress - before)
    return out.flatten(1, 2), traffic
