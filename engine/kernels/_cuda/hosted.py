# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""All pages in pinned host memory, those chosen lately in a buffer on the device, which fetches the others by itself.

A pair is whoever has a list of its own: a request, or one of its kv heads. Each has the same number of slots of the
buffer; a page that is not there takes the slot longest not chosen. A step needs nothing of the host but its memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

OLDEST = 255
"""Steps beyond which a slot's age does not count on."""
PIECE = 4096
FETCHERS = 256


@triton.jit(do_not_specialize=["capacity", "stride"])
def find_slots(
    pages, counts, slot_of, page_of, used, free, clock, slots, moves, move_counts, hits, capacity, stride,
    CAP: tl.constexpr, SLOTS: tl.constexpr, OLDEST: tl.constexpr,
):  # fmt: skip
    """Program: one pair. Its listed pages' slots; pages that must come first into `moves` [pairs, 2, capacity].

    `hits` int64 [2]: pages that were there, and pages that were not, counted on. A page in another pair's slot is not
    there: its owner may give it up while this one reads.
    """
    pair = tl.program_id(0)
    now = tl.load(clock)
    count = tl.load(counts + pair)
    own, mine, moved = pair * SLOTS, pair.to(tl.int64) * stride, pair.to(tl.int64) * (2 * capacity)
    spot, places = tl.arange(0, CAP), own + tl.arange(0, SLOTS)
    there = spot < count
    page = tl.load(pages + mine + spot, mask=there, other=0)
    slot = tl.load(slot_of + page, mask=there, other=-1)
    hit = there & (slot >= own) & (slot < own + SLOTS)
    tl.store(used + slot, now, mask=hit)
    missing = (there & ~hit).to(tl.int32)
    rank = tl.cumsum(missing, 0) - missing
    wanted = tl.sum(missing, 0)
    tl.debug_barrier()
    # The greatest age that enough slots have reached; of those that are just as old the first are taken.
    age = tl.minimum(now - tl.load(used + places), OLDEST)
    limit = wanted * 0
    for bit in tl.static_range(8):
        higher = limit + (128 >> bit)
        limit = tl.where(tl.sum((age >= higher).to(tl.int32), 0) >= wanted, higher, limit)
    older = (age > limit).to(tl.int32)
    first = tl.sum(older, 0)
    equal = (age == limit).to(tl.int32)
    number = tl.where(age > limit, tl.cumsum(older, 0) - older, first + tl.cumsum(equal, 0) - equal)
    tl.store(free + own + number, places, mask=(age >= limit) & (number < wanted))
    tl.debug_barrier()
    taken = tl.load(free + own + rank, mask=missing == 1, other=0)
    left = tl.load(page_of + taken, mask=missing == 1, other=-1)
    still = tl.load(slot_of + left, mask=left >= 0, other=-1)
    tl.store(slot_of + left, tl.zeros([CAP], tl.int32) - 1, mask=(left >= 0) & (still == taken))
    tl.debug_barrier()
    tl.store(page_of + taken, page, mask=missing == 1)
    tl.store(slot_of + page, taken, mask=missing == 1)
    tl.store(used + taken, now, mask=missing == 1)
    tl.store(slots + mine + spot, tl.where(hit, slot, taken), mask=there)
    tl.store(moves + moved + rank, page, mask=missing == 1)
    tl.store(moves + moved + capacity + rank, taken, mask=missing == 1)
    tl.store(move_counts + pair, wanted)
    tl.atomic_add(hits, (count - wanted).to(tl.int64), sem="relaxed")
    tl.atomic_add(hits + 1, wanted.to(tl.int64), sem="relaxed")


@triton.jit(do_not_specialize=["capacity", "pieces", "fetchers"])
def fetch_pages(
    host, device, moves, move_counts, capacity, pieces, fetchers, WORDS: tl.constexpr, PIECE: tl.constexpr
):  # fmt: skip
    """Program (pair, fetcher): every so many pieces of the pair's pages, as int32 words."""
    pair, fetcher = tl.program_id(0) // fetchers, tl.program_id(0) % fetchers
    count = tl.load(move_counts + pair) * pieces
    at = moves + pair.to(tl.int64) * (2 * capacity)
    words = tl.arange(0, PIECE)
    for i in range(fetcher, count, fetchers):
        word = i % pieces * PIECE + words
        source = tl.load(at + i // pieces).to(tl.int64) * WORDS
        target = tl.load(at + capacity + i // pieces).to(tl.int64) * WORDS
        tl.store(device + target + word, tl.load(host + source + word, mask=word < WORDS), mask=word < WORDS)


@dataclass
class HostedPages:
    """``host`` [pages, n] pinned, ``device`` [pairs * slots, n] of the same type; rows are whole words of four bytes.

    ``hits`` int64 [2]: pages chosen that were on the device, and that were not. Raises ValueError where the slots of a
    pair are fewer than it may choose.
    """

    host: torch.Tensor
    device: torch.Tensor
    pairs: int
    capacity: int

    def __post_init__(self) -> None:
        where, self.slots = self.device.device, len(self.device) // self.pairs
        if self.slots & (self.slots - 1) or self.slots < self.capacity:
            raise ValueError(
                f"host tier: {self.slots} slots to a pair, expected a power of two of at least {self.capacity}"
            )
        self.slot_of = torch.full((len(self.host),), -1, dtype=torch.int32, device=where)
        self.page_of = torch.full((len(self.device),), -1, dtype=torch.int32, device=where)
        self.used = torch.full((len(self.device),), -OLDEST - 1, dtype=torch.int32, device=where)
        self.free = torch.zeros(len(self.device), dtype=torch.int32, device=where)
        self.clock = torch.zeros(1, dtype=torch.int32, device=where)
        self.moves = torch.zeros(self.pairs, 2, self.capacity, dtype=torch.int32, device=where)
        self.move_counts = torch.zeros(self.pairs, dtype=torch.int32, device=where)
        self.hits = torch.zeros(2, dtype=torch.int64, device=where)

    def find(self, pages: torch.Tensor, counts: torch.Tensor, slots: torch.Tensor) -> None:
        """A new step: the first counts int32 [pairs] of pages int32 [pairs, n] are chosen -> slots int32 [pairs, n].

        Both lists may be longer than what is chosen, and lie the same way in memory.
        """
        self.clock += 1
        cap = triton.next_power_of_2(self.capacity)
        find_slots[(self.pairs,)](
            pages, counts, self.slot_of, self.page_of, self.used, self.free, self.clock, slots, self.moves,
            self.move_counts, self.hits, self.capacity, pages.stride(0),
            CAP=cap, SLOTS=self.slots, OLDEST=OLDEST, num_warps=max(4, min(16, max(cap, self.slots) // 128)),
        )  # fmt: skip

    def fetch(self) -> None:
        """Bring what the last `find` found missing."""
        words = self.host.shape[1] * self.host.element_size() // 4
        piece = min(PIECE, triton.next_power_of_2(words))
        fetchers = max(1, FETCHERS // self.pairs)
        fetch_pages[(self.pairs * fetchers,)](
            self.host.view(torch.int32), self.device.view(torch.int32), self.moves, self.move_counts, self.capacity,
            -(-words // piece), fetchers, WORDS=words, PIECE=piece, num_warps=4,
        )  # fmt: skip

    def forget(self, slots: torch.Tensor) -> None:
        """Give up what lies in slots int64 [n], as if it had been chosen long ago."""
        self.slot_of.index_fill_(0, self.page_of[slots].long().clamp_min_(0), -1)
        self.page_of.index_fill_(0, slots, -1)
        self.used.index_fill_(0, slots, -OLDEST - 1)
