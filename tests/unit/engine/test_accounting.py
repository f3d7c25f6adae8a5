"""What the cache says it holds is what its tensors weigh, to the byte, whatever was done to it."""

from __future__ import annotations

import random

import pytest
import torch

from engine.arena import OutOfBlocks
from engine.cache import KVCache
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.geometry import KVGeometry
from engine.host_tier import HostCounts, HostTier

GEOMETRY = KVGeometry(layers=2, kv_heads=2, q_heads=4, head_dim=16, block_tokens=16, rep_tokens=8, rank=8)
BLOCK_BYTES = GEOMETRY.pages_per_block * GEOMETRY.hot_page_bytes
STEPS = 10_000
CHECK_EVERY = 20


def nbytes(cache: KVCache) -> int:
    """The bytes of everything held for live blocks, from the tensors themselves."""
    live = torch.from_numpy((cache.blocks.refs.numpy() > 0).nonzero()[0])
    total = 0
    for code in cache.forms:
        offsets = cache.page_offset[cache.page_form == code]
        total += cache.arena.read(code, offsets).nbytes if len(offsets) else 0
    tables = (cache.page_offset[:, live], cache.page_form[:, live], *(one[:, live] for one in cache.tables.values()))
    total += sum(table.nbytes for table in tables)
    total += sum(row[live].nbytes for row in (cache.blocks.refs, cache.blocks.filled, cache.representatives.known))
    known = cache.representatives.known.nonzero()[:, 0]
    return total + cache.pool.reps.q[:, known].nbytes + cache.pool.reps.scale[:, known].nbytes


class Machine:
    """Random steps of requests on a cache: each holds blocks, and grows, shares, moves, swaps or drops them."""

    def __init__(self, seed: int, pool: str) -> None:
        self.chance = random.Random(seed)
        torch.manual_seed(seed)
        split = {"hot": 0.6, "cold_int8": 0.4} if pool == "split" else None
        self.cache = KVCache(
            GEOMETRY, 40 * BLOCK_BYTES, 90, split, host_bytes=16 * BLOCK_BYTES, contiguous=pool == "contiguous"
        )
        self.tier = HostTier(self.cache, torch.ones(90, dtype=torch.bool), HostCounts())
        self.requests: list[list[int]] = []
        self.done: dict[str, int] = {}

    def step(self) -> None:
        acts = ("admit", "append", "demote", "promote", "evict", "offload", "fetch", "preempt", "free", "share")
        act = self.chance.choices(acts, (3, 4, 3, 2, 1, 1, 1, 1, 2, 1))[0]
        if act != "admit" and not self.requests:
            return
        try:
            getattr(self, act)()
            self.done[act] = self.done.get(act, 0) + 1
        except OutOfBlocks:
            self.done["refused"] = self.done.get("refused", 0) + 1

    def some(self) -> list[int]:
        return self.chance.choice(self.requests)

    def admit(self) -> None:
        ids = self.cache.allocate(self.chance.randrange(1, 7))
        self.requests.append(ids)
        self._write(ids, len(ids) * GEOMETRY.block_tokens - self.chance.randrange(GEOMETRY.block_tokens))

    def append(self) -> None:
        held = self.some()
        new = self.cache.allocate(1)
        self._write(new, self.chance.randrange(1, GEOMETRY.block_tokens + 1))
        held += new

    def demote(self) -> None:
        code = self.chance.choice([code for code in self.cache.forms if code != HOT])
        # As the engine does: a block goes cold once it is full, and is summed up first.
        ids = [
            block for block in dict.fromkeys(self.some()) if self.cache.blocks.filled[block] == GEOMETRY.block_tokens
        ]
        if not ids:
            return
        self.cache.finalise(ids)
        self.cache.demote(*self._pages(ids, (HOT,)), code)

    def promote(self) -> None:
        code = self.chance.choice([code for code, form in self.cache.forms.items() if code != HOT and form.WHOLE])
        self.cache.promote(*self._pages(self.some(), (code,)), code)

    def evict(self) -> None:
        self.cache.evict(*self._pages(self.some(), tuple(code + at for code in self.cache.forms for at in (0, HOST))))

    def offload(self) -> None:
        self.tier.offload(self._pages(self.some(), tuple(self.cache.forms)))

    def fetch(self) -> None:
        self.tier.recall(self._pages(self.some(), tuple(code + HOST for code in self.cache.forms)))

    def preempt(self) -> None:
        self.tier.offload(self._pages(self.requests[-1], (HOT,)))

    def free(self) -> None:
        self.cache.release(self.requests.pop(self.chance.randrange(len(self.requests))))

    def share(self) -> None:
        ids = self.some()[:2]
        self.cache.retain(ids)
        self.requests.append(list(ids))

    def _write(self, ids: list[int], count: int) -> None:
        place = torch.arange(max(1, count))
        for layer in range(GEOMETRY.layers):
            k, v = torch.randn(2, len(place), GEOMETRY.kv_heads, GEOMETRY.head_dim)
            self.cache.write(
                layer, torch.tensor(ids)[place // GEOMETRY.block_tokens], place % GEOMETRY.block_tokens, k, v
            )

    def _pages(self, ids: list[int], codes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        index = torch.tensor(sorted(set(ids)))
        held = self.cache.page_form[:, index]
        wanted = torch.isin(held, torch.tensor(codes)) & (torch.rand(held.shape) < 0.5)
        layer, place, head = wanted.nonzero(as_tuple=True)
        return layer, index[place], head


@pytest.mark.parametrize("pool", ["arena", "split", "contiguous"])
def test_ten_thousand_random_steps_keep_the_accounting_exact(pool: str) -> None:
    machine = Machine(seed=7, pool=pool)
    cache = machine.cache
    for step in range(STEPS):
        machine.step()
        if step % CHECK_EVERY == 0:
            assert cache.resident_bytes() == nbytes(cache)
            assert cache.arena.live_bytes + cache.arena.unusable_bytes(HOT) <= cache.arena.pool_bytes
        if step % (50 * CHECK_EVERY) == 0:
            cache.check()
    assert min(machine.done.get(act, 0) for act in ("admit", "append", "demote", "evict", "preempt", "free")) > 100
    for ids in machine.requests:
        cache.release(ids)
    cache.check()
    assert cache.resident_bytes() == nbytes(cache) == 0
    assert cache.arena.free_bytes == cache.arena.pool_bytes
    assert cache.host is not None
    assert cache.host.live_bytes == 0
    assert set(cache.page_form.unique().tolist()) <= {NONE, EVICTED}
    machine.tier.close()
