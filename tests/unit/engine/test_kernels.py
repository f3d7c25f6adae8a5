"""Every kernel against the float64 oracle: same choice, same output, same traffic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.cache import KVCache
from engine.forms import HOT
from engine.geometry import KVGeometry
from engine.kernels import DecodeBatch, Keep, _paged, block, get, names
from engine.kernels.oracle import Oracle
from engine.timeline import Timeline

ROOT = Path(__file__).parents[3]

ON_CPU = [name for name in names() if not name.startswith("triton")]
SHAPES = [
    KVGeometry(layers=2, kv_heads=2, q_heads=4, head_dim=64),
    KVGeometry(layers=1, kv_heads=1, q_heads=3, head_dim=32, block_tokens=16, rep_tokens=8),
    KVGeometry(layers=3, kv_heads=4, q_heads=4, head_dim=128, block_tokens=64, rep_tokens=16),
    KVGeometry(layers=1, kv_heads=2, q_heads=16, head_dim=48, rank=8),
    KVGeometry(layers=1, kv_heads=2, q_heads=4, head_dim=32, rep_tokens=32, rep_rows=1),
]


def filled(
    geometry: KVGeometry, lens: list[int], seed: int, *, whole: bool = False, cold: tuple[int, ...] = ()
) -> tuple[KVCache, DecodeBatch]:
    """A cache with random keys and values in scattered blocks, half in cold forms (all, or the codes in `cold`), some
    evicted (none if `whole`).
    """
    torch.manual_seed(seed)
    need = [geometry.blocks_for(n) for n in lens]
    blocks = sum(need) + 7
    cache = KVCache(geometry, 2 * blocks * geometry.pages_per_block * geometry.hot_page_bytes, blocks)
    ids = torch.tensor(cache.allocate(blocks))[torch.randperm(blocks)].tolist()
    table = torch.full((len(lens), max(need)), -1, dtype=torch.int32)
    cache.pool.floats.fill_(torch.nan)
    full: list[int] = []
    for row, (n, count) in enumerate(zip(lens, need, strict=True)):
        mine, ids = ids[:count], ids[count:]
        table[row, :count] = torch.tensor(mine, dtype=torch.int32)
        places = torch.arange(n)
        for layer in range(geometry.layers):
            k, v = torch.randn(2, n, geometry.kv_heads, geometry.head_dim)
            cache.write(
                layer, torch.tensor(mine)[places // geometry.block_tokens], places % geometry.block_tokens, k, v
            )
        full += mine[: n // geometry.block_tokens]
    cache.finalise(full)
    if not whole and full:
        scatter(cache, full, cold or tuple(code for code in cache.forms if code != HOT))
    cache.check()
    return cache, DecodeBatch(table, torch.tensor(lens, dtype=torch.int32))


def scatter(cache: KVCache, full: list[int], cold: tuple[int, ...]) -> None:
    """Give some pages each of the cold forms, and drop some."""
    shape = (cache.geometry.layers, len(full), cache.geometry.kv_heads)
    fate = torch.rand(shape)
    for i, code in enumerate(cold):
        layer, block, head = torch.where((fate > 0.2 + 0.5 * i / len(cold)) & (fate < 0.2 + 0.5 * (i + 1) / len(cold)))
        cache.demote(layer, torch.tensor(full)[block], head, code)
    layer, block, head = torch.where((fate > 0.65) & (fate < 0.8))
    cache.evict(layer, torch.tensor(full)[block], head)


def poisoned(*shape: int) -> None:
    """Leave NaN in memory the allocator is likely to hand out next."""
    for _ in range(4):
        torch.full(shape, torch.nan)


@pytest.mark.parametrize("geometry", SHAPES, ids=str)
@pytest.mark.parametrize("name", ON_CPU)
@pytest.mark.parametrize("lens", [[1], [200], [33, 500, 64], [129, 1, 32, 31, 300, 77, 512, 95]], ids=str)
def test_a_kernel_agrees_with_the_oracle(name: str, geometry: KVGeometry, lens: list[int]) -> None:
    cache, batch = filled(geometry, lens, seed=sum(lens))
    kernels, oracle = get(name), Oracle(torch.float64)
    keep = Keep(0.3, sink_tokens=20, window_tokens=40, block_tokens=geometry.block_tokens)
    scale = geometry.head_dim**-0.5
    for layer in range(geometry.layers):
        q = torch.randn(len(lens), geometry.q_heads, geometry.head_dim)
        wanted = oracle.select(q, layer, cache, batch, keep)
        if name != "dense":
            chosen = kernels.select(q, layer, cache, batch, keep)
            assert torch.equal(chosen.count, wanted.count)
            assert torch.equal(chosen.index, wanted.index)
        for selection in (wanted, None):
            poisoned(*q.shape)
            out = kernels.attend(q, layer, cache, batch, selection, scale)
            torch.testing.assert_close(
                out, oracle.attend(q, layer, cache, batch, selection, scale), atol=2e-5, rtol=1e-4
            )
            assert kernels.traffic.hot_pages == oracle.traffic.hot_pages
            assert kernels.traffic.cold_pages == oracle.traffic.cold_pages
            assert kernels.traffic.entries_read == pytest.approx(oracle.traffic.entries_read)
            assert kernels.traffic.entries_total == sum(lens)
        hot_and_cold = wanted.accesses(cache, layer, batch)
        kernels.attend(q, layer, cache, batch, wanted, scale)
        assert hot_and_cold == (kernels.traffic.hot_pages, kernels.traffic.cold_pages)


@pytest.mark.parametrize("name", ON_CPU)
def test_reading_every_block_is_dense_attention(name: str) -> None:
    geometry, lens = SHAPES[0], [70, 200]
    cache, batch = filled(geometry, lens, seed=1, whole=True)
    q = torch.randn(2, 4, 64)
    out = get(name).attend(q, 1, cache, batch, None, 0.125)
    for row, n in enumerate(lens):
        k, v = cache.read_dense(1, batch.block_table[row], n)
        groups = q[row].view(2, 2, 64)
        expected = torch.nn.functional.scaled_dot_product_attention(groups, k.transpose(0, 1), v.transpose(0, 1))
        torch.testing.assert_close(out[row].view(2, 2, 64), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["block", "oracle"])
def test_ties_go_to_the_lowest_block_and_the_forced_blocks_stay(name: str) -> None:
    geometry = SHAPES[0]
    cache, batch = filled(geometry, [32 * 20 + 5], seed=3, whole=True)
    cache.pool.reps.q.fill_(1)
    cache.pool.reps.scale.fill_(0.5)
    keep = Keep(0.4, sink_tokens=1, window_tokens=33)
    chosen = get(name).select(torch.ones(1, 4, 64), 0, cache, batch, keep)
    assert chosen.index[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 19, 20]


@pytest.mark.parametrize("name", ["block", "generic", "oracle"])
def test_a_block_without_representatives_is_read_before_scored_ones(name: str) -> None:
    cache, batch = filled(SHAPES[0], [32 * 20], seed=4, whole=True)
    unknown = batch.block_table[0, 11].item()
    cache.representatives.forget(np.array([unknown]))
    chosen = get(name).select(torch.randn(1, 4, 64), 0, cache, batch, Keep(0.1))
    assert {11, 19} == set(chosen.index[0, 0].tolist())


@pytest.mark.parametrize("name", ["block", "generic", "oracle"])
def test_phases_are_counted_where_the_time_goes(name: str) -> None:
    cache, batch = filled(SHAPES[0], [300], seed=5)
    timeline, kernels, q = Timeline(), get(name), torch.randn(1, 4, 64)
    selection = kernels.select(q, 0, cache, batch, Keep(0.5))
    kernels.attend(q, 0, cache, batch, selection, 0.125, timeline.mark)
    spent = timeline.seconds()
    assert spent["attend"] > 0
    assert ("gather" in spent, "decompress" in spent) == (name == "generic", name == "generic")


def test_after_the_warm_up_nothing_is_compiled_any_more() -> None:
    block.warm_up(SHAPES[2])
    cache, batch = filled(SHAPES[0], [100, 40], seed=6)
    wide = torch.nn.functional.pad(batch.block_table.long(), (0, 3), value=-1)
    batch = DecodeBatch(wide[:, :4], batch.context_lens.long())
    q = torch.randn(4, 2, 64).transpose(0, 1)
    kernels = get("block")
    chosen = kernels.select(q, 1, cache, batch, Keep(0.5))
    for selection in (chosen, None):
        kernels.attend(q, 1, cache, batch, selection, 0.125)
    for compiled in (_paged.attend_pages, block.select_blocks):
        assert len(compiled.signatures) == 1


def test_freed_memory_is_kept_where_the_c_library_can() -> None:
    code = "from engine.memory import keep_freed_memory as keep; print(keep())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() in {"True", "False"}


def test_the_kept_share_counts_sinks_and_window() -> None:
    keep = Keep(0.25, sink_tokens=40, window_tokens=64, min_blocks=3)
    assert keep.blocks_for(8192) == 64
    assert keep.blocks_for(32 * 10) == 4
    assert keep.blocks_for(70) == 3
    assert keep.blocks_for(1) == 1
    assert Keep(0.7).blocks_for(320) == 7


def test_an_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'generic'"):
        get("genric")
