"""Keys, values and queries to measure with: `random` ones, and `drift`, whose neighbouring blocks resemble each other.

In real contexts what matters to a query lies in runs; independent keys have none. `drift` lets the mean key of a block
wander with a correlation length of 8 blocks, and asks for one block of the context. Every rank makes the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt

import torch

from engine.lab.shards.shape import Shape

KINDS = ("drift", "random")
RUN_BLOCKS = 8
TOPIC = 0.8
"""Part of a key that is its block's; the rest, 0.6, is its token's."""


@dataclass(frozen=True)
class Content:
    """`kind` of KINDS. Raises ValueError for another."""

    shape: Shape
    kind: str
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"keys {self.kind!r}, expected one of {', '.join(KINDS)}")

    def topics(self, layer: int) -> torch.Tensor:
        """The mean key of every block, float32 [requests, kv_heads, blocks, d], made on the CPU."""
        shape = self.shape
        lead = (shape.requests, shape.kv_heads, shape.blocks_in(layer), shape.head_dim)
        return torch.zeros(lead) if self.kind == "random" else wandering(lead, self._seed(3 * layer))

    def pages(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v [requests, kv_heads, blocks, tokens, d] on the device."""
        dtype, topics = self.dtype, self.topics(layer).to(self.device)
        made = self._made(self.device, 3 * layer + 1)
        lead = (*topics.shape[:3], self.shape.block_tokens, self.shape.head_dim)
        k, v = (torch.empty(lead, dtype=dtype, device=self.device).normal_(generator=made) for _ in range(2))
        if self.kind == "drift":
            k.mul_(sqrt(1 - TOPIC * TOPIC)).add_(topics.to(dtype)[..., None, :], alpha=TOPIC)
        return k, v

    def means(self, layer: int) -> torch.Tensor:
        """Mean keys as `pages` would give, drawn from their own distribution: no page is made."""
        topics = self.topics(layer).to(self.device)
        noise = torch.randn(topics.shape, generator=self._made(self.device, 3 * layer + 1), device=self.device)
        own = sqrt(1 - TOPIC * TOPIC) if self.kind == "drift" else 1.0
        return topics * TOPIC + noise * (own / sqrt(self.shape.block_tokens))

    def queries(self, layer: int, draw: int = 0) -> torch.Tensor:
        """float32 [requests, q_heads, d]; under `drift` each kv head's group asks for a block of its own."""
        shape = self.shape
        made = self._made("cpu", 3 * layer + 2 + 3 * shape.layers * (draw + 1))
        lead = (shape.requests, shape.kv_heads, shape.group, shape.head_dim)
        q = torch.randn(lead, generator=made)
        if self.kind == "drift":
            topics = self.topics(layer)
            at = torch.randint(topics.shape[2], lead[:2], generator=made)
            about = topics.gather(2, at[..., None, None].expand(*lead[:2], 1, lead[-1]))
            q = q * 0.5 + about
        return q.reshape(shape.requests, shape.q_heads, shape.head_dim)

    def asked(self, draw: int = 0) -> list[torch.Tensor]:
        """Queries of every layer on the device, in the type of its pages."""
        return [self.queries(layer, draw).to(self.device, self.dtype) for layer in range(self.shape.layers)]

    @property
    def dtype(self) -> torch.dtype:
        """Of pages: float32 on a CPU, bfloat16 on a GPU."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    def _made(self, device: str, stream: int) -> torch.Generator:
        return torch.Generator(device=device).manual_seed(self._seed(stream))

    def _seed(self, stream: int) -> int:
        return self.seed * 1_000_003 + stream


@lru_cache(maxsize=8)
def wandering(lead: tuple[int, int, int, int], seed: int) -> torch.Tensor:
    """Steps that keep a part of the block before; kept, since every partition of a batch asks for the same."""
    found = torch.randn(lead, generator=torch.Generator().manual_seed(seed))
    keep = exp(-1 / RUN_BLOCKS)
    for block in range(1, lead[2]):
        found[:, :, block].mul_(sqrt(1 - keep * keep)).add_(found[:, :, block - 1], alpha=keep)
    return found
