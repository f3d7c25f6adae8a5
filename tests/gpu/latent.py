"""What must hold of latent rows' readers, on a device or interpreted: each check raises AssertionError, or is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.kernels._cuda.latent import RowSpace
from engine.kernels._cuda.latent_index import Picker
from engine.latent.pool import LatentBatch, LatentPool, eight_bit
from engine.latent.readers import PlainLatentReader, TritonLatentReader
from engine.latent.shape import LatentShape
from tests.gpu.checks import difference


def case(
    shape: LatentShape, lens: Sequence[int], dtype: torch.dtype, device: str, seed: int = 0
) -> tuple[LatentPool, LatentBatch]:
    """Random rows in pages in random order; NaN in every row that no request has."""
    make = torch.Generator(device=device).manual_seed(seed)
    tokens = shape.page_tokens
    needed = [max(1, -(-shape.rows(n) // tokens)) for n in lens]
    own_pages = -(-shape.window // tokens)
    pages = sum(needed) + own_pages * len(lens) + 3
    pool, batch = LatentPool.empty(shape, pages, dtype, device), LatentBatch(shape, len(lens), max(needed), device)
    order = torch.randperm(pages, generator=make, device=device).int()
    slots = torch.arange(tokens, device=device).int()
    pool.rows.fill_(torch.nan)
    for request, n in enumerate(lens):
        batch.table[request, : needed[request]], order = order[: needed[request]], order[needed[request] :]
        batch.counts[request], batch.own_counts[request] = shape.rows(n), shape.own_rows(n)
        own, order = (order[:own_pages, None] * tokens + slots).flatten(), order[own_pages:]
        batch.own[request] = own[: shape.window]
        numbers, there = batch.row_numbers()
        at = torch.cat((numbers[request][there[request]], batch.own[request, : shape.own_rows(n)].long()))
        keys = torch.randn(len(at), shape.index_dim, generator=make, device=device) if shape.top_k else None
        pool.store(at, torch.randn(len(at), shape.width, generator=make, device=device), keys)
    return pool, batch


def expected(pool: LatentPool, q: torch.Tensor, scale: float, chosen: Sequence[torch.Tensor]) -> torch.Tensor:
    """float64 [requests, heads, latent] over the rows named, int64 [n] for each request."""
    out = torch.zeros(*q.shape[:2], pool.shape.latent, dtype=torch.float64, device=q.device)
    for request, at in enumerate(chosen):
        rows = pool.rows[at].double()
        if len(at):
            out[request] = (q[request].double() @ rows.T * scale).softmax(-1) @ rows[:, : pool.shape.latent]
    return out


def best(pool: LatentPool, batch: LatentBatch, queries: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
    """The rows that must be chosen, float64: for each request those of the top_k best scores, and its own."""
    values, scales = pool.key_values()
    numbers, there = batch.row_numbers()
    tokens, chosen = pool.shape.page_tokens, []
    for request in range(batch.requests):
        at = numbers[request][there[request]]
        keys = values[at // tokens, at % tokens].double() * scales[at // tokens, at % tokens].double()[:, None]
        reach = (queries[request].double() @ keys.T).clamp_min(0)
        score = weights[request].double() @ reach
        picked = score.argsort(descending=True, stable=True)[: pool.shape.top_k]
        chosen.append(torch.cat((at[picked], batch.own[request, : batch.own_counts[request]].long())))
    return chosen


def everything(batch: LatentBatch) -> list[torch.Tensor]:
    numbers, there = batch.row_numbers()
    own = [row[:count].long() for row, count in zip(batch.own, batch.own_counts.tolist(), strict=True)]
    return [torch.cat((at[mine], rest)) for at, mine, rest in zip(numbers, there, own, strict=True)]


def check_reader(
    shape: LatentShape,
    lens: Sequence[int],
    dtype: torch.dtype,
    device: str,
    tolerance: float,
    *,
    processors: int = 4,
    tile: int = 0,
) -> None:
    """Chosen rows are the best ones, and attention over them is float64's; parts are poisoned before.

    ``tile``: rows to a program that chooses, where not the usual number.
    """
    pool, batch = case(shape, lens, dtype, device)
    q = torch.randn(len(lens), shape.heads, shape.width, device=device).to(dtype)
    reader, chosen = TritonLatentReader(pool, batch, processors), everything(batch)
    reader.plan()
    if reader.picker is not None and tile:
        reader.picker = Picker(shape, batch, processors, tile)
    if shape.top_k:
        queries, scale = eight_bit(torch.randn(len(lens), shape.index_heads, shape.index_dim, device=device))
        weights = torch.randn(len(lens), shape.index_heads, device=device) * scale
        chosen = best(pool, batch, queries, weights)
        for _ in range(2):
            reader.listed.fill_(-7)
            reader.select(queries, weights)
            check_chosen(reader, batch, chosen)
    plain = PlainLatentReader(pool, batch)
    if shape.top_k:
        plain.select(queries, weights)
    right = expected(pool, q, shape.width**-0.5, chosen)
    for part in {1, 3, reader.launch.parts}:
        reader.launch = replace(reader.launch, parts=part)
        groups = batch.requests * -(-shape.heads // reader.launch.lanes)
        reader.space = RowSpace(groups * part, reader.launch.lanes, shape.latent, device)
        for buffer in (reader.space.part, reader.space.weight, reader.out):
            buffer.fill_(torch.nan)
        error = difference(reader.attend(q, shape.width**-0.5), right)
        assert error <= tolerance, f"{part} parts are off by {error:.2e}, expected at most {tolerance:.0e}"
    error = difference(plain.attend(q, shape.width**-0.5), right)
    assert error <= tolerance, f"plain operators are off by {error:.2e}"


def check_chosen(reader: TritonLatentReader, batch: LatentBatch, chosen: Sequence[torch.Tensor]) -> None:
    """As many as must be, each once; of those near the last place float32's rounding may take another."""
    assert reader.picker is not None
    for request, wanted in enumerate(chosen):
        found = reader.listed[request, : reader.counts[request]]
        assert len(found) == len(wanted) == len(torch.unique(found)), f"{len(found)} rows, expected {len(wanted)}"
        differ = len(set(found.tolist()) ^ set(wanted.tolist()))
        assert differ <= 2 * max(1, len(wanted) // 500), f"{differ // 2} of {len(wanted)} rows are others"
    assert int(reader.picker.bins.abs().sum()) == 0, "a bin was not reset"


def check_ties(device: str) -> None:
    """Where all keys are alike the first rows are chosen."""
    shape = LatentShape(4, 32, 16, top_k=40, index_heads=4, index_dim=32)
    pool, batch = case(shape, [300, 200], torch.float32, device)
    pool.keys.zero_()
    reader = TritonLatentReader(pool, batch, 2)
    queries, scale = eight_bit(torch.randn(2, 4, 32, device=device))
    reader.select(queries, scale)
    assert torch.equal(reader.listed[:, :40].long(), batch.row_numbers()[0][:, :40]), "ties do not go to the first row"
