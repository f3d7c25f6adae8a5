"""A layer that sees only its newest tokens (Mistral and others): its decode attention, exact whatever the policy.

A window is short, so its pages are read whole and attended to with plain operations, one request after another. Pages
that no later token of the request sees are freed in these layers.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms import EVICTED, HOT, NONE
from engine.kernels._base import DecodeBatch, Phases, Traffic

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.request import Request
    from engine.residency import Residency


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


def forget(residency: Residency, windows: tuple[int, ...], request: Request, *, shared: bool) -> None:
    """Free what every windowed layer has left behind for good, in blocks that the request holds alone.

    With ``shared`` its prompt's blocks stay whole: another request may go on from the middle of them.
    """
    cache, widest = residency.cache, max(windows, default=0)
    behind = max(0, request.computed + 1 - widest) // cache.geometry.block_tokens
    start = max(request.forgotten, len(request.keys) if shared else 0)
    if not widest or behind <= start:
        return
    ids = torch.tensor(request.block_table[start:behind])
    ids = ids[cache.ref_counts[ids] == 1]
    layers = torch.tensor([layer for layer, window in enumerate(windows) if window])
    held = cache.page_form[layers[:, None], ids]
    place, block, head = ((held != NONE) & (held != EVICTED)).nonzero(as_tuple=True)
    if residency.tier is not None:
        residency.tier.settle()
    cache.evict(layers[place], ids[block], head)
    request.forgotten = behind
