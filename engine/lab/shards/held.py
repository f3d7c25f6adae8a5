"""What one rank holds of one layer: which blocks of which heads, their representatives, keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.lab.shards.content import Content
from engine.lab.shards.dealt import Dealt


@dataclass
class Held:
    """`places` int32 [requests, heads, n]: own blocks by their place in the context, ascending, -1 beyond.

    n is the same on every rank. `pinned` bool with it; `means` [requests, heads, n, d] the mean key of each block;
    `k`, `v` [requests, heads, n, tokens, d], None where only selection is of interest. `first_head` is where `heads`
    begin among all.
    """

    places: torch.Tensor
    pinned: torch.Tensor
    means: torch.Tensor
    k: torch.Tensor | None
    v: torch.Tensor | None
    first_head: int
    read: torch.Tensor
    """Blocks that the last step read, int64 [requests, heads]."""

    @property
    def heads(self) -> int:
        return self.places.shape[1]

    @property
    def kv_bytes(self) -> int:
        """Of blocks that are there: keys, values and mean keys, without what pads them."""
        there = int((self.places >= 0).sum())
        held = (self.means, self.k, self.v)
        return sum(there * x[0, 0, 0].numel() * x.element_size() for x in held if x is not None)


def hold(dealt: Dealt, content: Content, rank: int, layer: int, *, pages: bool) -> Held | None:
    """A rank's part of a layer, None where it has none. Makes the whole layer and keeps what is its own."""
    own = own_places(dealt, rank, layer)
    if own is None:
        return None
    places, first = own
    shape = dealt.shape
    device = content.device
    at = torch.from_numpy(places).to(device)
    heads = slice(first, first + at.shape[1])
    pinned = torch.from_numpy(shape.pinned(layer)).to(device)[at.clamp_min(0).long()] & (at >= 0)
    index = at.clamp_min(0).long()
    nothing = torch.zeros(at.shape[:2], dtype=torch.int64)
    if not pages:
        return Held(at, pinned, _take(content.means(layer)[:, heads], index), None, None, first, nothing)
    k, v = content.pages(layer)
    whole = at.shape[2] == shape.blocks_in(layer)
    k, v = (x[:, heads] if whole else _take(x[:, heads], index) for x in (k, v))
    k, v = k.contiguous(), v.contiguous()
    means = torch.stack([one.float().mean(1) for one in k.flatten(0, 1)]).view(*at.shape, shape.head_dim)
    return Held(at, pinned, means.to(content.dtype), k, v, first, nothing)


def own_places(dealt: Dealt, rank: int, layer: int) -> tuple[np.ndarray, int] | None:
    """int32 [requests, heads, n] and the first head; padded to the most that any rank has."""
    owner = dealt.owners[layer]
    if dealt.partition.SPLIT == "layers":
        if dealt.stage(layer) != rank:
            return None
        return np.broadcast_to(np.arange(owner.shape[2], dtype=np.int32), owner.shape).copy(), 0
    if dealt.partition.SPLIT == "heads":
        heads = dealt.heads(rank)
        lead = (owner.shape[0], len(heads), owner.shape[2])
        return np.broadcast_to(np.arange(owner.shape[2], dtype=np.int32), lead).copy(), heads[0]
    most = max(int((owner == other).sum(-1).max()) for other in range(dealt.ranks))
    # A stable sort brings own blocks to the front in the order of their places.
    order = np.argsort(owner != rank, axis=-1, kind="stable")[..., :most].astype(np.int32)
    count = (owner == rank).sum(-1)
    order[np.arange(order.shape[-1]) >= count[..., None]] = -1
    return order, 0


def _take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Blocks `index` [b, h, n] of x [b, h, blocks, ...], a request at a time: a copy of the whole would not fit."""
    b, h = torch.arange(x.shape[0], device=x.device), torch.arange(x.shape[1], device=x.device)
    return x[b[:, None, None], h[None, :, None], index]
