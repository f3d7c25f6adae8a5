"""The KV of a context before any policy touched it, so that many policies can be tried on one prefill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.knobs import Knobs
from engine.prefix import block_keys

if TYPE_CHECKING:
    from engine.llm import Engine


@dataclass(frozen=True)
class Snapshot:
    """Full blocks of a context: per layer K and V float32 [tokens, kv_heads, head_dim]; ``importance`` as it was
    sampled while prefilling, [layers, blocks, kv_heads].
    """

    tokens: tuple[int, ...]
    keys: list[Tensor]
    values: list[Tensor]
    importance: Tensor

    @property
    def bytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in (*self.keys, *self.values))


def take(engine: Engine, tokens: tuple[int, ...]) -> Snapshot:
    """Prefill ``tokens`` in an engine that keeps everything, and read what it stored."""
    engine.submit(tokens, 1)
    while engine.has_work:
        engine.step()
    shape = engine.cache.geometry
    ids = engine.scheduler.prefix.match(block_keys(tokens, shape.block_tokens))
    table, held = torch.tensor(ids), len(ids) * shape.block_tokens
    pairs = [engine.cache.read_dense(layer, table, held) for layer in range(shape.layers)]
    keys, values = [k.clone() for k, _ in pairs], [v.clone() for _, v in pairs]
    return Snapshot(tokens[:held], keys, values, engine.residency.importance[:, table].clone())


def put(engine: Engine, snapshot: Snapshot) -> None:
    """Store it as if it had been prefilled here: the engine's policy decides its forms, later prompts find it."""
    shape, cache = engine.cache.geometry, engine.cache
    keys = block_keys(snapshot.tokens, shape.block_tokens)
    ids = cache.allocate(len(keys))
    places = torch.arange(len(snapshot.tokens))
    blocks, slots = torch.tensor(ids)[places // shape.block_tokens], places % shape.block_tokens
    for layer, (k, v) in enumerate(zip(snapshot.keys, snapshot.values, strict=True)):
        cache.write(layer, blocks, slots, k, v)
    engine.residency.importance[:, ids] = snapshot.importance
    engine.residency.place_prefix(ids)
    # The prefix cache keeps the reference that allocating gave.
    engine.scheduler.prefix.add(keys, ids)


def plain() -> Knobs:
    """Knobs under which nothing is lost."""
    return Knobs(policy="full", kernels="block", max_running=1)
