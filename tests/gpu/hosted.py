"""What must hold of pages in host memory, on a device or interpreted: the check raises AssertionError, or is true."""

from __future__ import annotations

import torch

from engine.kernels._cuda.hosted import HostedPages


def check_tier(device: str, steps: int = 12) -> None:
    """Whatever is chosen lies in a slot of its own, byte for byte, even where pairs share pages; hits are an LRU's.

    The first pair shares nothing: what it holds is held against a list of pages by age.
    """
    make = torch.Generator().manual_seed(0)
    pairs, most, slots, pages = 3, 16, 32, 200
    host = torch.randn(pages, 24, generator=make)
    host = host.pin_memory() if device != "cpu" else host
    tier = HostedPages(host, torch.full((pairs * slots, 24), torch.nan, device=device), pairs, most)
    own = torch.randperm(pages, generator=make)[:180].view(3, 60)
    own[2, :10] = own[1, :10]
    found = torch.zeros(pairs, most, dtype=torch.int32, device=device)
    held: dict[int, int] = {}
    hits = chosen_in_all = 0
    for step in range(steps):
        counts = torch.randint(1, most + 1, (pairs,), generator=make)
        listed = torch.stack([own[pair][torch.randperm(60, generator=make)[:most]] for pair in range(pairs)])
        before = tier.hits.clone()
        tier.find(listed.int().to(device), counts.int().to(device), found)
        tier.fetch()
        for pair, count in enumerate(counts.tolist()):
            mine = found[pair, :count].long().cpu()
            assert bool(((mine // slots) == pair).all()), "a slot is another pair's"
            assert len(torch.unique(mine)) == count, "two pages lie in one slot"
            assert torch.equal(tier.device.cpu()[mine], host[listed[pair, :count]]), "a page is not what it should be"
        for page in listed[0, : counts[0]].tolist():
            hits += page in held
            held[page] = step
        chosen_in_all += int(counts.sum())
        while len(held) > slots:
            del held[min(held, key=lambda page: held[page])]
        assert int((tier.hits - before).sum()) == int(counts.sum()), "pages were not counted"
    assert int(tier.hits.sum()) == chosen_in_all
    assert int(tier.hits[0]) >= hits > 0, "what lay in the buffer was fetched again"
