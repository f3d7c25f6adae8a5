"""What a rank does by itself, in plain torch and float32: score its blocks, attend to those that reach the edge.

One request and head at a time and without matrix products in scoring, so that a block's score and a head's result have
the same bits whoever computes them and whatever lies beside them. The device's twin is `engine.lab.shards.device`.
"""

from __future__ import annotations

from typing import Protocol

import torch

from engine.lab.shards import candidates
from engine.lab.shards.held import Held
from engine.lab.shards.merge import merge


class Operators(Protocol):
    """For one layer: q [requests, heads, group, d] of the heads that are held. `edge` None reads what was chosen alone.

    Attending leaves in `held.read` how many blocks were read. A part is flat float32: results
    [requests, heads, group, d], each normalised, then the logs of their sums.
    """

    def keys(self, q: torch.Tensor, held: Held) -> torch.Tensor:
        """Candidates int64 [requests, heads, n]."""
        ...

    def choose_alone(self, q: torch.Tensor, held: Held, wanted: int) -> torch.Tensor | None:
        """Choose among own blocks, nobody asked: the edge with `keys`, or None where the choice is kept in `held`."""
        ...

    def part(self, q: torch.Tensor, held: Held, edge: torch.Tensor | None) -> torch.Tensor:
        """Attend to own blocks, whose keys were asked for last, from the edge on."""
        ...

    def whole(self, q: torch.Tensor, held: Held, edge: torch.Tensor | None) -> torch.Tensor:
        """As `part`, where nothing is to be merged: the results alone, like q."""
        ...

    def merge(self, parts: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        """parts [ranks, flat] of all ranks -> results like q."""
        ...


class Plain:
    def __init__(self) -> None:
        self._keys: torch.Tensor | None = None

    def keys(self, q: torch.Tensor, held: Held) -> torch.Tensor:
        scores = torch.empty(held.places.shape)
        for b in range(scores.shape[0]):
            for h in range(scores.shape[1]):
                rows = [(held.means[b, h] * one).sum(-1) for one in q[b, h]]
                scores[b, h] = torch.stack(rows).amax(0)
        self._keys = candidates.keys(scores, held.places, held.pinned)
        return self._keys

    def choose_alone(self, q: torch.Tensor, held: Held, wanted: int) -> torch.Tensor | None:
        return candidates.edge(self.keys(q, held), wanted)

    def chosen(self, held: Held, edge: torch.Tensor | None) -> torch.Tensor:
        """bool [requests, heads, n]"""
        read = held.places >= 0
        if edge is not None:
            assert self._keys is not None
            read = read & (self._keys >= edge[..., None])
        held.read = read.sum(-1)
        return read

    def part(self, q: torch.Tensor, held: Held, edge: torch.Tensor | None) -> torch.Tensor:
        return torch.cat([x.flatten() for x in self._attend(q, held, edge)])

    def whole(self, q: torch.Tensor, held: Held, edge: torch.Tensor | None) -> torch.Tensor:
        return self._attend(q, held, edge)[0]

    def merge(self, parts: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        out = parts[:, : q.numel()].view(-1, *q.shape)
        return merge(out, parts[:, q.numel() :].view(out.shape[:-1]))

    def _attend(self, q: torch.Tensor, held: Held, edge: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        assert held.k is not None
        assert held.v is not None
        read = self.chosen(held, edge)
        out, log_sum = torch.zeros(q.shape), torch.full(q.shape[:3], -torch.inf)
        scale = q.shape[-1] ** -0.5
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                mine = read[b, h]
                if bool(mine.any()):
                    k, v = held.k[b, h][mine].flatten(0, 1), held.v[b, h][mine].flatten(0, 1)
                    s = q[b, h] @ k.T * scale
                    top = s.amax(-1, keepdim=True)
                    weight = (s - top).exp_()
                    total = weight.sum(-1, keepdim=True)
                    out[b, h] = weight @ v / total
                    log_sum[b, h] = (top + total.log())[:, 0]
        return out, log_sum
