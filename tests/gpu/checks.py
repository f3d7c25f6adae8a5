"""What must hold of the device's kernels, on a device or interpreted: each check raises AssertionError, or is true."""

from __future__ import annotations

import torch

from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.kernels._cuda.attend import Launch, attend
from engine.kernels._cuda.pool import ABSENT, Statistics, is_form, page_number
from engine.kernels._cuda.prefill import attend_chunk, observe
from engine.kernels._cuda.select import Choice, Chooser
from engine.kernels._cuda.store import append
from engine.kernels._cuda.worklist import WorkList, share_out
from tests.gpu.reference import Case, attended, case, listed, scores


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """|found - expected| / |expected|; NaN where something was not written."""
    return float((found.double() - expected).norm() / expected.norm())


def check_attention(made: Case, work: WorkList, launch: Launch, tolerance: float, *, planned: bool = False) -> float:
    """Against float64 over the pages the work list names; the output and the parts are poisoned before, twice."""
    scale = made.q.shape[-1] ** -0.5
    expected = attended(made, scale, listed(made, work))
    plan = None
    if planned:
        rows = share_out(work.counts.sum(0).tolist(), 3 * work.pairs, 4 * work.pairs)
        plan = rows.to(made.q.device)
    for _ in range(2):
        out = torch.full_like(made.q, torch.nan)
        work.space.part.fill_(torch.nan)
        work.space.weight.fill_(torch.nan)
        attend(made.q, out, made.pool, work, scale, launch, plan)
        assert int(work.space.done.abs().sum()) == 0, "a counter was not reset"
        error = difference(out, expected)
        assert error <= tolerance, f"attention is off by {error:.2e}, expected at most {tolerance:.0e}"
    return error


def dense_list(made: Case) -> WorkList:
    work = WorkList(made.pool.geometry, len(made.lens), made.table.shape[1], made.q.device, made.pool.forms)
    work.everything(made.pool, made.table, made.lens)
    return work


def check_selection(made: Case, keep: Keep, how: Choice) -> WorkList:
    """The count is exact, sinks and window are in, and no block left out scores above one that is in."""
    requests, blocks = made.table.shape
    work = WorkList(made.pool.geometry, requests, blocks, made.q.device, made.pool.forms)
    work.pages.fill_(-7)
    chooser = Chooser(made.pool, requests, blocks, keep)
    chooser.plan(made.lens.tolist())
    chooser.choose(made.q, made.pool, made.table, made.lens, work, how)
    for (request, head), found in listed(made, work).items():
        n = int(made.lens[request])
        count = -(-n // keep.block_tokens)
        held = made.pool.place[made.table[request, :count].long(), head]
        live = {spot for spot in range(count) if int(held[spot]) != ABSENT}
        forced = {s for s in live if s < keep.sink_blocks or s >= keep.window_start(n)}
        wanted = max(len(forced), min(keep.blocks_for(n), len(live)))
        assert len(found) == wanted, f"{len(found)} blocks chosen, expected {wanted}"
        assert forced <= set(found) <= live, "sinks or window missing, or an evicted page chosen"
        score = scores(made, request, head)
        inside, outside = sorted(set(found) - forced), sorted(live - set(found))
        if inside and outside:
            worst, best = float(score[inside].min()), float(score[outside].max())
            assert worst >= best - 2e-3 * max(1.0, abs(best)), f"left out {best}, took {worst}"
    expected = (made.lens - 1) % keep.block_tokens + 1
    assert torch.equal(work.tail, expected), "tail"
    return work


def check_append(geometry: KVGeometry, statistics: Statistics, device: str, dtype: torch.dtype) -> None:
    """Rows land in their slots, nothing else changes, and a block that becomes full gets its representatives."""
    lens = [geometry.block_tokens, 5, 2 * geometry.block_tokens, geometry.block_tokens + 1]
    made = case(geometry, lens, statistics=statistics, dtype=dtype, device=device, seed=3)
    pool = made.pool
    before, reps = pool.hot.clone(), pool.reps.clone()
    pool.reps.fill_(torch.nan)
    k, v = (torch.randn(len(lens), geometry.kv_heads, geometry.head_dim, device=device).to(dtype) for _ in range(2))
    append(k, v, pool, made.table, made.lens)
    last = torch.tensor([(n - 1) // geometry.block_tokens for n in lens], device=device)
    blocks = made.table.gather(1, last[:, None])[:, 0].long()
    for request, n in enumerate(lens):
        slot, pages = (n - 1) % geometry.block_tokens, pool.place[blocks[request]].long()
        before[pages, 0, slot], before[pages, 1, slot] = k[request], v[request]
    assert torch.equal(pool.hot.nan_to_num(7), before.nan_to_num(7)), "a row is wrong, or another one changed"
    full = blocks[[n % geometry.block_tokens == 0 for n in lens]]
    found = pool.reps[full].clone()
    pool.reps.copy_(reps)
    pool.summarise(full)
    torch.testing.assert_close(found, pool.reps[full], atol=2e-3, rtol=1e-2)


def check_quantised(made: Case, original: torch.Tensor) -> None:
    """Int8 pages are within half a step of `original` [blocks, heads, 2, tokens, d] float32."""
    held = is_form(made.pool.place, "cold_int8")
    k, v, _ = made.pool.read("cold_int8", page_number(made.pool.place[held]))
    for part, values in enumerate((k, v)):
        true = original[held][:, part]
        step = true.abs().amax(-1, keepdim=True) / 127
        assert float(((values - true).abs() / step).max()) <= 0.502


def check_prompt(made: Case, tolerance: float) -> None:
    """A prompt's last token attends as decode does, and what it gives each full block adds up to what was given."""
    shape, scale = made.pool.geometry, made.q.shape[-1] ** -0.5
    expected = attended(made, scale)
    for request, n in enumerate(made.lens.tolist()):
        blocks = -(-n // shape.block_tokens)
        q, table = made.q[request : request + 1], made.table[request, :blocks].contiguous()
        out, mass_at = attend_chunk(q, made.pool, table, n - 1)
        error = difference(out[0], expected[request])
        assert error <= tolerance, f"a prompt over {made.pool.forms} is off by {error:.2e}"
        mass = observe(q, mass_at, made.pool, table, n - 1, blocks, 16)
        seen = (made.pool.place[table.long()] != ABSENT).any(0)
        given = mass.sum(0)[seen]
        torch.testing.assert_close(given, torch.full_like(given, shape.group), rtol=1e-3, atol=0)
