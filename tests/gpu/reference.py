"""Random paged caches, and what the device's kernels must make of them, by float64 torch on any device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from engine.cache import SLAB_PAGES
from engine.geometry import KVGeometry
from engine.kernels._cuda.operators import Triton
from engine.kernels._cuda.pool import ABSENT, PagedPool, Statistics, cold_code, is_form, page_number
from engine.kernels._cuda.worklist import WorkList


@dataclass
class Case:
    pool: PagedPool
    table: torch.Tensor
    lens: torch.Tensor
    q: torch.Tensor


def case(
    geometry: KVGeometry,
    lens: list[int],
    *,
    cold_share: float = 0.0,
    evicted_share: float = 0.0,
    statistics: Statistics = "mean",
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cpu",
    seed: int = 0,
    forms: tuple[str, ...] = ("cold_int8",),
) -> Case:
    """Pages in random order, NaN wherever nothing was written; only full blocks are evicted, or cold in a form."""
    make = torch.Generator(device=device).manual_seed(seed)
    tokens, heads = geometry.block_tokens, geometry.kv_heads
    needed = [-(-n // tokens) for n in lens]
    blocks = sum(needed) + 3
    pages = blocks * heads
    geometry = replace(geometry, dtype=str(dtype).removeprefix("torch."))
    slab = SLAB_PAGES * geometry.hot_page_bytes
    forms = forms if cold_share else ()
    pool = PagedPool.empty(
        geometry, blocks, pages, len(forms) * pages * slab, statistics, dtype, device, forms=forms, slab_bytes=slab
    )
    pool.data.fill_(255)
    pool.hot.normal_(generator=make)
    pool.place.copy_(torch.randperm(pages, generator=make, device=device).view(blocks, heads))
    order = torch.randperm(blocks, generator=make, device=device).int()
    table = torch.full((len(lens), max(1, *needed)), -1, dtype=torch.int32, device=device)
    for request, count in enumerate(needed):
        table[request, :count], order = order[:count], order[count:]
    pool.summarise(torch.arange(blocks, device=device))
    full = torch.ones(blocks, dtype=torch.bool, device=device)
    for request, n in enumerate(lens):
        if n % tokens:
            last = table[request, needed[request] - 1].long()
            full[last] = False
            pool.hot[pool.place[last].long(), :, n % tokens :] = torch.nan
    change(pool, full, cold_share, evicted_share, make)
    q = torch.randn(len(lens), geometry.q_heads, geometry.head_dim, generator=make, device=device).to(dtype)
    return Case(pool, table, torch.tensor(lens, dtype=torch.int32, device=device), q)


def change(pool: PagedPool, full: torch.Tensor, cold: float, evicted: float, make: torch.Generator) -> None:
    """Make that share of the pages of `full` blocks cold, evict another share, and poison what they leave."""
    drawn = torch.rand(pool.place.shape, generator=make, device=pool.place.device)
    to_cold = (drawn < cold) & full[:, None]
    gone = (drawn >= cold) & (drawn < cold + evicted) & full[:, None]
    which = torch.randint(max(1, len(pool.forms)), drawn.shape, generator=make, device=drawn.device)
    pages = pool.place.numel()
    for number, form in enumerate(pool.forms):
        mine = to_cold & (which == number)
        source = pool.place[mine].long()
        # Every form has slabs of its own, more than it needs, and its pages lie in them in random order.
        first = number * pages * pool.slab(form)[1]
        target = first + torch.randperm(pages, generator=make, device=source.device)[: len(source)]
        pool.write(form, target, Triton().freeze(pool, form, source))
        pool.place[mine] = cold_code(form, target).int()
        pool.hot[source] = torch.nan
    pool.hot[pool.place[gone].long()] = torch.nan
    pool.place[gone] = ABSENT


def page_values(pool: PagedPool, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """k, v float64 [n, tokens, d] and which tokens are there, of pages that are there, `place` int32 [n]."""
    both = pool.hot[place.clamp_min(0).long()].double()
    there = torch.ones(both.shape[0], both.shape[2], dtype=torch.bool, device=place.device)
    for form in pool.forms:
        mine = is_form(place, form)
        if bool(mine.any()):
            k, v, there[mine] = pool.read(form, page_number(place[mine]))
            both[mine] = torch.stack((k, v), 1).double()
    return both[:, 0], both[:, 1], there


def attended(made: Case, scale: float, chosen: dict[tuple[int, int], list[int]] | None = None) -> torch.Tensor:
    """float64 [requests, q_heads, d]; `chosen` names places of the table per (request, kv head), None reads all."""
    shape, tokens = made.pool.geometry, made.pool.geometry.block_tokens
    out = torch.zeros(made.q.shape, dtype=torch.float64, device=made.q.device)
    for request, n in enumerate(made.lens.tolist()):
        for head in range(shape.kv_heads):
            spots = torch.arange(-(-n // tokens)) if chosen is None else torch.tensor(chosen[request, head])
            spots = spots.long().to(made.q.device)
            place = made.pool.place[made.table[request, spots].long(), head]
            spots, place = spots[place != ABSENT], place[place != ABSENT]
            if not len(place):
                continue
            k, v, there = page_values(made.pool, place)
            held = there & ((spots[:, None] * tokens + torch.arange(tokens, device=spots.device)) < n)
            mine = slice(head * shape.group, (head + 1) * shape.group)
            weight = (made.q[request, mine].double() @ k[held].T * scale).softmax(-1)
            out[request, mine] = weight @ v[held]
    return out


def scores(made: Case, request: int, head: int) -> torch.Tensor:
    """float64 [blocks]: of each block, the best score of a sub-block for the best query of the group."""
    shape = made.pool.geometry
    count = -(-int(made.lens[request]) // shape.block_tokens)
    reps = made.pool.reps[made.table[request, :count].long(), head].double()
    q = made.q[request, head * shape.group : (head + 1) * shape.group].double()
    if made.pool.statistics == "mean":
        found = torch.einsum("gd,bsd->gbs", q, reps[:, :, 0])
    else:
        found = torch.einsum("gd,bsd->gbs", q.clamp_max(0), reps[:, :, 0])
        found += torch.einsum("gd,bsd->gbs", q.clamp_min(0), reps[:, :, 1])
    return found.amax((0, 2))


def listed(made: Case, work: WorkList) -> dict[tuple[int, int], list[int]]:
    """The places of the table that a work list names, checked to be there, once each, ascending in every list."""
    found: dict[tuple[int, int], list[int]] = {}
    heads = made.pool.geometry.kv_heads
    counts, pages = work.counts.tolist(), work.pages.tolist()
    place, table, lens = made.pool.place.tolist(), made.table.tolist(), made.lens.tolist()
    for pair in range(work.pairs):
        request, head = divmod(pair, heads)
        blocks = -(-lens[request] // made.pool.geometry.block_tokens)
        spot_of = {place[table[request][spot]][head]: spot for spot in range(blocks)}
        hot = [spot_of[page] for page in pages[0][pair][: counts[0][pair]]]
        assert hot == sorted(set(hot)), "hot entries are not ascending"
        found[request, head] = hot
        for row, form in enumerate(work.forms, 1):
            cold = [spot_of[cold_code(form, page)] for page in pages[row][pair][: counts[row][pair]]]
            assert cold == sorted(set(cold)), f"{form} entries are not ascending"
            found[request, head] = found[request, head] + cold
    return found
