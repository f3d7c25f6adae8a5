"""The KV cache keeps its books through any sequence of moves, and what it keeps reads back."""

from __future__ import annotations

import random

import pytest
import torch

from engine.arena import OutOfBlocks
from engine.cache import COLD, KVCache
from engine.forms import HOT
from engine.geometry import KVGeometry
from engine.timeline import Timeline

GEOMETRY = KVGeometry(layers=3, kv_heads=2, q_heads=4, head_dim=32, block_tokens=16, rep_tokens=8)


def make(blocks: int = 24, max_blocks: int = 60) -> KVCache:
    return KVCache(GEOMETRY, blocks * GEOMETRY.pages_per_block * GEOMETRY.hot_page_bytes, max_blocks)


def write_all(cache: KVCache, ids: list[int], count: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Random k, v [layers, tokens, kv_heads, head_dim] in the first `count` slots of consecutive blocks."""
    shape = cache.geometry
    count = len(ids) * shape.block_tokens if count is None else count
    k, v = torch.randn(2, shape.layers, count, shape.kv_heads, shape.head_dim)
    place = torch.arange(count)
    for layer in range(shape.layers):
        block = torch.tensor(ids)[place // shape.block_tokens]
        cache.write(layer, block, place % shape.block_tokens, k[layer], v[layer])
    return k, v


def pages_of(ids: list[int], layers: range | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grid = torch.cartesian_prod(
        torch.tensor(layers or range(GEOMETRY.layers)), torch.tensor(ids), torch.arange(GEOMETRY.kv_heads)
    )
    return grid[:, 0], grid[:, 1], grid[:, 2]


def counted_bytes(cache: KVCache) -> list[float]:
    """Resident bytes per layer, counted from the tables page by page."""
    live = int((cache.ref_counts > 0).sum())
    known = int(cache.representatives.known.sum())
    shape, out = cache.geometry, []
    for layer in range(shape.layers):
        total = 0.0
        for code, form in cache.forms.items():
            total += int((cache.page_form[layer] == code).sum()) * form.page_bytes(shape)
        total += known * shape.kv_heads * shape.representative_bytes
        total += live * (shape.kv_heads * 9 + 9 / shape.layers)
        out.append(total)
    return out


@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_of_moves_keeps_the_books_and_leaks_nothing(seed: int) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    cache = make()
    held: dict[int, int] = {}
    for _ in range(150):
        act = chance.choice(["allocate", "allocate", "release", "retain", "finalise", "demote", "promote", "evict"])
        if act == "allocate":
            n = chance.randrange(1, 8)
            fits, before = cache.can_allocate(n), cache.resident_bytes()
            try:
                ids = cache.allocate(n)
                assert fits
                held |= dict.fromkeys(ids, 1)
                write_all(cache, ids, chance.randrange(1, n * GEOMETRY.block_tokens + 1))
            except OutOfBlocks:
                assert not fits
                assert cache.resident_bytes() == before
        elif held:
            some = chance.sample(sorted(held), chance.randrange(1, len(held) + 1))
            apply(cache, act, some, held)
        cache.check()
        assert cache.resident_bytes_by_layer() == pytest.approx(counted_bytes(cache))
    for block, count in held.items():
        cache.release([block] * count)
    cache.check()
    assert cache.resident_bytes() == 0
    assert cache.arena.free_bytes == cache.arena.pool_bytes
    assert cache.blocks.live == 0


def apply(cache: KVCache, act: str, some: list[int], held: dict[int, int]) -> None:
    if act == "retain":
        cache.retain(some)
        for block in some:
            held[block] += 1
    elif act == "release":
        gone = cache.release(some)
        assert sorted(gone) == sorted(block for block in some if held[block] == 1)
        for block in some:
            held[block] -= 1
            if held[block] == 0:
                del held[block]
    elif act == "finalise":
        cache.finalise(some, cache.blocks.filled[some].long())
    else:
        layer, block, head = pages_of(some)
        code = cache.page_form[layer, block, head]
        wanted = {"demote": code == HOT, "promote": code == COLD, "evict": (code == HOT) | (code == COLD)}[act]
        wanted &= torch.rand(len(code)) < 0.6
        before = cache.page_form.clone()
        try:
            getattr(cache, act)(layer[wanted], block[wanted], head[wanted])
        except OutOfBlocks:
            assert torch.equal(cache.page_form, before)


def test_what_is_written_reads_back() -> None:
    cache = make()
    ids = cache.allocate(3)
    k, v = write_all(cache, ids, 41)
    for layer in range(GEOMETRY.layers):
        read = cache.read_dense(layer, torch.tensor(ids, dtype=torch.int32), 41)
        torch.testing.assert_close(read, (k[layer], v[layer]), rtol=0, atol=0)


def test_int8_pages_are_within_half_a_step_and_come_back_hot() -> None:
    cache = make()
    ids = cache.allocate(3)
    k, v = write_all(cache, ids)
    assert cache.demote(*pages_of(ids[:2])) == len(pages_of(ids[:2])[0]) * GEOMETRY.cold_page_bytes
    timeline = Timeline()
    for layer in range(GEOMETRY.layers):
        for read, true in zip(
            cache.read_dense(layer, torch.tensor(ids), 48, timeline.mark), (k[layer], v[layer]), strict=True
        ):
            step = true.abs().amax(-1, keepdim=True) / 127
            assert bool(((read - true).abs() <= step * 0.5001).all())
            assert torch.equal(read[32:], true[32:])
    assert timeline.seconds()["decompress"] > 0
    cold = cache.read_dense(1, torch.tensor(ids), 48)
    cache.promote(*pages_of(ids[:2]))
    torch.testing.assert_close(cache.read_dense(1, torch.tensor(ids), 48), cold, rtol=0, atol=0)


def test_a_whole_pool_of_hot_pages_can_still_be_demoted() -> None:
    cache = make(blocks=8)
    ids = cache.allocate(8)
    assert not cache.can_allocate(1)
    cache.demote(*pages_of(ids))
    cache.check()
    assert cache.can_allocate(4)


def test_evicted_pages_read_as_absent() -> None:
    cache = make()
    ids = cache.allocate(2)
    write_all(cache, ids)
    table = torch.tensor(ids)
    assert cache.absent(0, table, 32) is None
    freed = cache.evict(torch.tensor([0]), torch.tensor(ids[:1]), torch.tensor([1]))
    assert freed == GEOMETRY.hot_page_bytes
    absent = cache.absent(0, table, 20)
    assert absent is not None
    assert absent.sum(0).tolist() == [0, 16]
    k, _ = cache.read_dense(0, table, 20)
    assert not k[:16, 1].any()
    assert cache.absent(1, table, 32) is None


def test_only_hot_pages_are_written() -> None:
    cache = make()
    ids = cache.allocate(1)
    cache.demote(torch.tensor([1]), torch.tensor(ids), torch.tensor([0]))
    rows = torch.zeros(1, 2, 32)
    cache.write(0, torch.tensor(ids), torch.tensor([0]), rows, rows)
    with pytest.raises(ValueError, match="not hot"):
        cache.write(1, torch.tensor(ids), torch.tensor([0]), rows, rows)


def test_moves_from_the_wrong_form_or_named_twice_change_nothing() -> None:
    cache = make()
    ids = cache.allocate(2)
    with pytest.raises(ValueError, match="cold_int8"):
        cache.promote(*pages_of(ids))
    with pytest.raises(ValueError, match="twice"):
        cache.demote(*(index.repeat(2) for index in pages_of(ids)))
    cache.check()


def test_representatives_are_true_bounds_of_the_filled_slots() -> None:
    cache = make()
    ids = cache.allocate(4)
    k, _ = write_all(cache, ids, 16 * 3 + 5)
    cache.finalise(ids, torch.tensor([16, 16, 16, 5]))
    for layer in range(GEOMETRY.layers):
        bounds = cache.pool.reps.q[layer, ids].float() * cache.pool.reps.scale[layer, ids][..., None, None]
        for block in range(4):
            for sub in range(2):
                start = block * 16 + (sub * 8 if block < 3 else 0)
                keys = k[layer, start : start + (8 if block < 3 else 5)]
                low, high = bounds[block, :, sub, 0], bounds[block, :, sub, 1]
                assert bool((low <= keys.amin(0)).all())
                assert bool((high >= keys.amax(0)).all())
                assert bool((high - keys.amax(0) <= 2.1 * cache.pool.reps.scale[layer, ids[block], :, sub, None]).all())


def test_writing_to_a_block_forgets_its_representatives() -> None:
    cache = make()
    ids = cache.allocate(2)
    write_all(cache, ids, 20)
    cache.finalise(ids, torch.tensor([16, 4]))
    before = cache.resident_bytes()
    rows = torch.zeros(1, 2, 32)
    cache.write(0, torch.tensor(ids[1:]), torch.tensor([4]), rows, rows)
    assert cache.representatives.known[ids].tolist() == [True, False]
    assert before - cache.resident_bytes() == GEOMETRY.representative_bytes * GEOMETRY.pages_per_block


def test_entries_are_tokens_by_tier() -> None:
    cache = make()
    ids = cache.allocate(3)
    write_all(cache, ids, 40)
    layer, block, head = pages_of(ids[:1], range(1))
    cache.demote(layer[:1], block[:1], head[:1])
    cache.evict(torch.tensor([2]), torch.tensor(ids[1:2]), torch.tensor([1]))
    entries = cache.entries_by_layer()
    assert entries.hot == [32.0, 40.0, 32.0]
    assert entries.cold == [8.0, 0.0, 0.0]


def test_overhead_is_what_is_resident_beside_keys_and_values() -> None:
    cache = make()
    ids = cache.allocate(4)
    write_all(cache, ids)
    cache.finalise(ids)
    cache.demote(*pages_of(ids[:2]))
    hot = 2 * GEOMETRY.pages_per_block * GEOMETRY.hot_page_bytes
    cold = 2 * GEOMETRY.pages_per_block * 2 * GEOMETRY.block_tokens * GEOMETRY.head_dim
    assert cache.resident_bytes() == hot + cold + cache.overhead_bytes()


def test_a_failed_allocation_leaves_ids_and_pages_alone() -> None:
    cache = make(blocks=8, max_blocks=20)
    cache.allocate(6)
    with pytest.raises(OutOfBlocks):
        cache.allocate(3)
    cache.check()
    assert cache.blocks.live == 6
    assert cache.can_allocate(2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"head_dim": 40}, "head_dim"),
        ({"q_heads": 3}, "q_heads"),
        ({"rep_tokens": 5}, "rep_tokens"),
        ({"layers": 0}, "layers"),
    ],
)
def test_a_geometry_that_cannot_be_names_its_field(change: dict[str, int], said: str) -> None:
    sound = {"layers": 2, "kv_heads": 2, "q_heads": 4, "head_dim": 64}
    with pytest.raises(ValueError, match=said):
        KVGeometry(**(sound | change))
