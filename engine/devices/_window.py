"""Decode attention of a layer that sees only its newest tokens, by plain operators whose shapes never change."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.devices import _plain
from engine.devices._base import Batch
from engine.kernels._cuda.pool import ABSENT, PagedPool


def attend(q: Tensor, pool: PagedPool, batch: Batch, window: int) -> Tensor:
    """q [requests, q_heads, d] over the last ``window`` tokens of each context -> the same shape."""
    shape = pool.geometry
    tokens, count = shape.block_tokens, -(-window // shape.block_tokens) + 1
    lens = batch.lens.long()[:, None]
    spot = (lens - 1).clamp_min(0) // tokens - torch.arange(count, device=q.device)
    ids = batch.table.long().gather(1, spot.clamp_min(0))
    held = pool.place[ids].masked_fill((spot < 0)[..., None], ABSENT).transpose(1, 2)
    k, v, kept = _plain.pages(pool, held)
    place = spot[..., None] * tokens + torch.arange(tokens, device=q.device)
    read = (place < lens[..., None]) & (place >= lens[..., None] - window)
    read = kept & read[:, None]
    v = v.masked_fill(~read[..., None], 0)
    group = q.view(len(q), shape.kv_heads, shape.group, -1)
    score = (group @ k.flatten(2, 3).transpose(-1, -2)).float() * shape.head_dim**-0.5
    weight = score.masked_fill(~read.flatten(2)[:, :, None], _plain.HIDDEN).softmax(-1).to(q.dtype)
    out: Tensor = (weight @ v.flatten(2, 3)).reshape(q.shape)
    return out
