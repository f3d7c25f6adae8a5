"""Host memory behind the pool: pages go, come back when chosen, and nothing is lost on the way."""

from __future__ import annotations

import random

import pytest
import torch

from engine.arena import OutOfBlocks
from engine.cache import COLD, KVCache
from engine.forms import HOST
from engine.geometry import KVGeometry
from engine.host_tier import HostCounts, HostTier
from engine.knobs import Knobs
from tests.unit.engine.test_cache import pages_of, write_all
from tests.unit.engine.tiny import engine, prompt, run

GEOMETRY = KVGeometry(layers=3, kv_heads=2, q_heads=4, head_dim=32, block_tokens=16, rep_tokens=8)


class Clock:
    """Counts the seconds somebody asked to sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def with_host(blocks: int = 24, host_blocks: int = 24) -> KVCache:
    block = GEOMETRY.pages_per_block * GEOMETRY.hot_page_bytes
    return KVCache(GEOMETRY, blocks * block, 60, host_bytes=host_blocks * block)


def cold_and_away(blocks: int = 6, **options: int) -> tuple[KVCache, HostTier, list[int], Clock]:
    """A cache of cold blocks, all of them on the host."""
    cache, clock = with_host(**options), Clock()
    ids = cache.allocate(blocks)
    write_all(cache, ids)
    cache.demote(*pages_of(ids))
    tier = HostTier(cache, torch.ones(60, dtype=torch.bool), HostCounts(), sleep=clock)
    assert tier.offload(pages_of(ids)) == len(pages_of(ids)[0])
    cache.check()
    return cache, tier, ids, clock


def test_pages_come_back_as_they_went() -> None:
    cache = with_host()
    ids = cache.allocate(4)
    k, v = write_all(cache, ids)
    tier = HostTier(cache, torch.ones(60, dtype=torch.bool), HostCounts())
    before, live = cache.resident_bytes(), cache.arena.live_bytes
    tier.offload(pages_of(ids))
    assert cache.arena.live_bytes == 0
    assert before - cache.resident_bytes() == live
    cache.check()
    for layer in range(GEOMETRY.layers):
        torch.testing.assert_close(cache.read_dense(layer, torch.tensor(ids), 64), (k[layer], v[layer]))
    assert tier.recall(pages_of(ids))
    cache.check()
    assert cache.resident_bytes() == before
    torch.testing.assert_close(cache.read_dense(1, torch.tensor(ids), 64), (k[1], v[1]))
    tier.close()


def test_what_is_chosen_is_fetched_and_the_rest_stays_away() -> None:
    cache, tier, ids, _ = cold_and_away()
    chosen = torch.tensor([[[ids[0], ids[2], -1], [ids[2], -1, -1]]])
    tier.fetch(1, chosen)
    form = cache.page_form[1]
    assert form[ids[0], 0] == form[ids[2], 0] == form[ids[2], 1] == COLD
    assert form[ids[0], 1] == form[ids[1], 0] == COLD + HOST
    assert tier.counts.fetches == 3
    assert tier.counts.refetches == 3
    assert tier.counts.bytes_in == 3 * GEOMETRY.cold_page_bytes
    assert tier.counts.stall_s >= tier.counts.load_s > 0
    cache.check()
    tier.close()


def test_a_page_fetched_ahead_is_no_fetch_later() -> None:
    cache, tier, ids, _ = cold_and_away()
    chosen = torch.tensor([[[ids[0]], [ids[1]]]])
    tier.prefetch(0, chosen)
    assert cache.page_form[0, ids[0], 0] == COLD + HOST
    tier.fetch(0, chosen)
    assert cache.page_form[0, ids[0], 0] == COLD
    assert (tier.counts.prefetches, tier.counts.prefetch_hits, tier.counts.fetches) == (2, 2, 0)
    cache.check()
    tier.close()


def test_the_link_takes_as_long_as_it_is_said_to() -> None:
    _, tier, ids, clock = cold_and_away()
    tier.link_mb_s = 1.0
    tier.fetch(2, torch.tensor([[[ids[0]], [ids[0]]]]))
    assert sum(clock.slept) == pytest.approx(2 * GEOMETRY.cold_page_bytes / 1e6, rel=0.5)
    tier.close()


def test_hysteresis_keeps_what_was_chosen_lately() -> None:
    cache, tier, ids, _ = cold_and_away(4)
    tier.recall(pages_of(ids))
    knobs = Knobs(host_share=1.0, demote_after=3, host_mib=1)
    tier.after_step(knobs)
    assert tier.counts.offloads == 4 * GEOMETRY.pages_per_block
    for _ in range(4):
        tier.after_step(knobs)
    assert bool((cache.page_form[:, ids] == COLD + HOST).all())
    tier.fetch(0, torch.tensor([[[ids[3]], [ids[3]]]]))
    tier.after_step(knobs)
    assert bool((cache.page_form[0, ids[3]] == COLD).all())
    for _ in range(4):
        tier.after_step(knobs)
    assert bool((cache.page_form[0, ids[3]] == COLD + HOST).all())
    tier.close()


def test_a_full_host_is_a_failure_counted_and_nothing_lost() -> None:
    cache = with_host(host_blocks=1)
    ids = cache.allocate(8)
    write_all(cache, ids)
    tier = HostTier(cache, torch.ones(60, dtype=torch.bool), HostCounts())
    assert tier.offload(pages_of(ids)) == 0
    assert tier.counts.failures == len(pages_of(ids)[0])
    cache.check()
    with pytest.raises(OutOfBlocks):
        cache.begin(1, *pages_of(ids))
    tier.close()


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_moves_keeps_the_books(seed: int) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    cache, tier, ids, _ = cold_and_away()
    kept = [cache.read(layer, torch.tensor(ids)) for layer in range(GEOMETRY.layers)]
    for _ in range(60):
        chosen = torch.tensor(chance.choices([*ids, -1], k=6)).view(1, 2, 3)
        act = chance.choice(["fetch", "prefetch", "offload", "step"])
        if act in ("fetch", "prefetch"):
            getattr(tier, act)(chance.randrange(GEOMETRY.layers), chosen)
        elif act == "offload":
            tier.settle()
            layer, block, head = pages_of(ids)
            there = cache.page_form[layer, block, head] < HOST
            tier.offload((layer[there], block[there], head[there]))
        else:
            tier.after_step(Knobs(host_share=chance.random(), demote_after=chance.randrange(3), host_mib=1))
    tier.settle()
    cache.check()
    for layer, (k, v) in enumerate(kept):
        torch.testing.assert_close(cache.read(layer, torch.tensor(ids)), (k, v), rtol=0, atol=0)
    tier.close()


def test_an_engine_with_a_host_tier_answers_as_one_without() -> None:
    answers = []
    for host in ({}, {"host_mib": "1", "host_share": "0.8", "prefetch": "0.5"}):
        made = engine(policy="combined", kernels="block", hot_share="0.1", **host)
        requests = [made.submit(prompt(200, seed=seed), 30) for seed in (1, 2)]
        run(made)
        made.cache.check()
        answers.append([request.generated for request in requests])
        tier = made.residency.tier
    assert answers[0] == answers[1]
    assert tier is not None
    assert tier.counts.fetches > 0
    assert tier.counts.offloads > 0
    tier.close()


def test_a_swapped_request_goes_on_where_it_was() -> None:
    answers = {}
    for how in ("recompute", "swap"):
        made = engine(pool_blocks=12, preemption=how, host_mib="1")
        requests = [made.submit(prompt(30, seed=seed), 40) for seed in range(20, 25)]
        run(made)
        made.cache.check()
        assert made.scheduler.counts.preemptions > 0
        answers[how] = [request.generated for request in requests]
        if how == "swap":
            assert made.scheduler.counts.swaps > 0
            assert made.scheduler.counts.recomputed == 0
        assert made.cache.host is not None
        assert made.cache.host.live_bytes == 0
    assert answers["swap"] == answers["recompute"]


def test_a_swapped_request_that_is_cancelled_gives_everything_back() -> None:
    made = engine(pool_blocks=12, preemption="swap", host_mib="1", prefix_cache="off")
    requests = [made.submit(prompt(30, seed=seed), 60) for seed in range(4)]
    while not any(request.block_table for request in made.scheduler.waiting):
        made.step()
    for request in requests:
        made.cancel(request)
    assert made.cache.blocks.live == 0
    made.cache.check()
