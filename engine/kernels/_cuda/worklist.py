"""What one attention call reads, in buffers whose size never changes, so that a captured graph can use them again."""

from __future__ import annotations

from copy import copy
from itertools import accumulate

import torch

from engine.geometry import KVGeometry
from engine.kernels._cuda.pool import ABSENT, PagedPool, is_form, page_number

# Entries past a list's end are fetched ahead, never used; this many must exist.
SLACK = 1024
MAX_PARTS = 64
JOINED = 16
LEAST_SLOTS = 2048


class Workspace:
    """Where the parts of a pair wait until the last program to finish joins them; `done` counts them, back to zero.

    Calls on one stream share it. `part` and `weight` (log2 of the softmax's sum, the same along d) are float32
    [slots, group, d].
    """

    def __init__(self, geometry: KVGeometry, requests: int, device: str | torch.device) -> None:
        pairs = requests * geometry.kv_heads
        slots = max(LEAST_SLOTS, 4 * pairs)
        self.part = torch.zeros(slots, geometry.group, geometry.head_dim, device=device)
        self.weight = torch.zeros(slots, geometry.group, geometry.head_dim, device=device)
        self.done = torch.zeros(pairs, dtype=torch.int32, device=device)


class WorkList:
    """One list of pages per form and (request, kv head): `pages` int32 [1 + cold forms, pairs, capacity], hot first.

    `counts` int32 [1 + cold forms, pairs]; `tail` int32 [requests]: tokens in the block being written, which is the
    last hot entry.
    """

    def __init__(
        self,
        geometry: KVGeometry,
        requests: int,
        capacity: int,
        device: str | torch.device,
        forms: tuple[str, ...] = (),
        space: Workspace | None = None,
    ) -> None:
        self.geometry, self.forms = geometry, forms
        lists = 1 + len(forms)
        pairs = requests * geometry.kv_heads
        self.requests, self.pairs, self.capacity = requests, pairs, capacity
        storage = torch.zeros(lists * pairs * capacity + SLACK, dtype=torch.int32, device=device)
        self.pages = storage[: lists * pairs * capacity].view(lists, pairs, capacity)
        self.counts = torch.zeros(lists, pairs, dtype=torch.int32, device=device)
        self.tail = torch.zeros(requests, dtype=torch.int32, device=device)
        self.space = space or Workspace(geometry, requests, device)

    def everything(self, pool: PagedPool, table: torch.Tensor, lens: torch.Tensor) -> None:
        """List all pages that are there, for dense attention: once a step, since every layer has the same pages.

        table int32 [requests, blocks], lens int32 [requests], on the pool's device.
        """
        tokens, heads = self.geometry.block_tokens, self.geometry.kv_heads
        places = torch.arange(table.shape[1], device=table.device)
        there = places * tokens < lens[:, None]
        held = pool.place[table.clamp_min(0).long()].transpose(1, 2).reshape(self.pairs, -1)
        self.take(held.masked_fill(~there.repeat_interleave(heads, 0), ABSENT))
        self.set_tail(lens)

    def take(self, held: torch.Tensor) -> None:
        """List these pages, int32 [pairs, n] as `place` names them, ABSENT where none is."""
        cold = [(is_form(held, form), page_number(held).int()) for form in self.forms]
        for row, (mine, page) in enumerate([(held >= 0, held), *cold]):
            order = (~mine).byte().argsort(dim=1, stable=True)
            self.pages[row, :, : held.shape[1]] = page.gather(1, order)
            self.counts[row] = mine.sum(1)

    def sharing(self, counts: torch.Tensor) -> WorkList:
        """The same lists and workspace, for one stream to use in turn, with counts int32 [lists, pairs] of its own."""
        other = copy(self)
        other.counts = counts
        return other

    def set_tail(self, lens: torch.Tensor) -> None:
        self.tail.copy_((lens - 1) % self.geometry.block_tokens + 1)

    def bytes_read(self, pool: PagedPool) -> int:
        """What attention must move for these lists: whole pages, entries, queries and results."""
        hot, *cold = (int(n) for n in self.counts.sum(1))
        sizes = [pool.page_bytes(form) for form in self.forms]
        shape = self.geometry
        rows = 2 * self.requests * shape.q_heads * shape.head_dim * pool.hot.element_size()
        frozen = sum(n * size for n, size in zip(cold, sizes, strict=True))
        return hot * pool.hot_page_bytes + frozen + 4 * (hot + sum(cold)) + rows


def parts_for(pairs: int, pages: int, programs: int) -> int:
    """Into how many programs to cut each pair, for about `programs` in all and no empty ones.

    Beyond JOINED, whole multiples of it: so many parts are joined at a time.
    """
    parts = max(1, min(programs // max(pairs, 1), pages, MAX_PARTS))
    return parts if parts < JOINED else parts - parts % JOINED


def share_out(pages: list[int], programs: int, capacity: int) -> torch.Tensor:
    """Work list of parts for pairs of unequal length, int32 [capacity, 4]: pair (-1 none), part, parts, first slot.

    Parts are as equal as whole pages allow; the largest come first.
    """
    total = sum(pages)
    size = max(1.0, total / max(programs - len(pages), 1))
    parts = [max(1, min(MAX_PARTS, n, -(-n // max(1, round(size))))) for n in pages]
    if sum(parts) > capacity:
        raise ValueError(f"work list: {sum(parts)} parts do not fit a capacity of {capacity}")
    firsts = list(accumulate(parts, initial=0))
    rows = [(pair, part, n, firsts[pair]) for pair, n in enumerate(parts) for part in range(n)]
    rows.sort(key=lambda row: -(pages[row[0]] / row[2]))
    rows += [(-1, 0, 1, 0)] * (capacity - len(rows))
    return torch.tensor(rows, dtype=torch.int32)
