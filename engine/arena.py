"""One stretch of bytes shared by all KV forms: slabs are lent to a form, cut into its pages, and come back empty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

Ints = npt.NDArray[np.int64]
COMMON = 0


class OutOfBlocks(Exception):
    """The pool cannot hold what was asked for; nothing was changed."""


class Arena:
    """Page allocator over `data`, a uint8 tensor of whole slabs.

    `page_bytes` maps a form code (1 and up) to its page size. With `split` (form code -> share of the slabs) each form
    owns a fixed part, and what it does not use is stranded; a form that is not named there can hold nothing.
    """

    def __init__(
        self,
        pool_bytes: int,
        slab_bytes: int,
        page_bytes: Mapping[int, int],
        split: Mapping[int, float] | None = None,
    ) -> None:
        self.slab_bytes = slab_bytes
        self.slabs = pool_bytes // slab_bytes
        self.pool_bytes = self.slabs * slab_bytes
        if self.slabs < 1:
            raise ValueError(f"arena: {pool_bytes} bytes do not hold one slab of {slab_bytes} bytes")
        for form, size in page_bytes.items():
            if form == COMMON or size < 1 or size > slab_bytes:
                raise ValueError(f"arena: form {form} with pages of {size} bytes does not fit a slab of {slab_bytes}")
        self.page_bytes = dict(page_bytes)
        self.data = torch.zeros(self.pool_bytes, dtype=torch.uint8)
        # The largest piece at whose multiples every page of the form begins: fewer indices to copy a page by.
        self._unit = {form: int(np.gcd(slab_bytes, size)) for form, size in page_bytes.items()}
        self._per_slab = {form: slab_bytes // size for form, size in page_bytes.items()}
        self._in_use = {form: np.zeros((self.slabs, n), dtype=np.bool_) for form, n in self._per_slab.items()}
        self._owner = np.full(self.slabs, COMMON, dtype=np.int8)
        self._live = np.zeros(self.slabs, dtype=np.int64)
        self.live_pages = dict.fromkeys(page_bytes, 0)
        self._reserve = reservation(self.slabs, page_bytes, split)

    def _borrowable(self, form: int) -> Ints:
        return np.flatnonzero((self._owner == COMMON) & ((self._reserve == COMMON) | (self._reserve == form)))

    def _room(self, form: int) -> int:
        """Free pages in slabs the form already holds."""
        return int(np.count_nonzero(self._owner == form)) * self._per_slab[form] - self.live_pages[form]

    def free_pages(self, form: int) -> int:
        """How many pages `allocate` could still give this form."""
        return self._room(form) + len(self._borrowable(form)) * self._per_slab[form]

    def can_allocate(self, form: int, n: int) -> bool:
        return n <= self.free_pages(form)

    def can_exchange(self, give: int, offsets: torch.Tensor, take: int, n: int) -> bool:
        """Whether `n` pages of form `take` fit once these pages of form `give` are freed."""
        left = self._live - np.bincount(offsets.numpy() // self.slab_bytes, minlength=self.slabs)
        emptied = (self._owner == give) & (left == 0) & ((self._reserve == COMMON) | (self._reserve == take))
        return n <= self.free_pages(take) + int(np.count_nonzero(emptied)) * self._per_slab[take]

    def allocate(self, form: int, n: int) -> torch.Tensor:
        """Byte offsets int64 [n], fullest slabs first so that others can empty. Raises OutOfBlocks."""
        per_slab = self._per_slab[form]
        short = n - self._room(form)
        if short > 0:
            fresh = self._borrowable(form)[: -(-short // per_slab)]
            if len(fresh) * per_slab < short:
                raise OutOfBlocks(
                    f"{n} pages of form {form} wanted, {self.free_pages(form)} free ({self.free_bytes} of "
                    f"{self.pool_bytes} bytes in whole slabs)"
                )
            self._owner[fresh] = form
        open_slabs = np.flatnonzero((self._owner == form) & (self._live < per_slab))
        open_slabs = open_slabs[np.argsort(-self._live[open_slabs], kind="stable")]
        needed = int(np.searchsorted(np.cumsum(per_slab - self._live[open_slabs]), n)) + 1
        row, column = np.nonzero(~self._in_use[form][open_slabs[:needed]])
        slab, column = open_slabs[row[:n]], column[:n]
        self._in_use[form][slab, column] = True
        self._live += np.bincount(slab, minlength=self.slabs)
        self.live_pages[form] += n
        return torch.from_numpy(slab * self.slab_bytes + column * self.page_bytes[form])

    def longest_run(self, form: int) -> int:
        """Most pages in a row that `allocate_run` could give this form."""
        free = np.flatnonzero(np.diff(self._borrowable(form), prepend=-2) != 1)
        borrowable = len(self._borrowable(form))
        return int(np.diff(free, append=borrowable).max(initial=0)) * self._per_slab[form]

    def allocate_run(self, form: int, n: int) -> torch.Tensor:
        """Byte offsets int64 [n] of pages that follow one another, in the first hole that is wide enough.

        Raises OutOfBlocks, also where enough is free in total. The page size must divide the slab.
        """
        per_slab, size = self._per_slab[form], self.page_bytes[form]
        slabs, free = -(-n // per_slab), self._borrowable(form)
        fits = np.flatnonzero(free[slabs - 1 :] - free[: max(0, len(free) - slabs + 1)] == slabs - 1)
        if len(fits) == 0:
            raise OutOfBlocks(
                f"{n} pages of form {form} in a row wanted, {self.longest_run(form)} is the longest run of "
                f"{self.free_pages(form)} free"
            )
        first = int(free[fits[0]])
        self._owner[first : first + slabs] = form
        self._in_use[form].reshape(-1)[first * per_slab : first * per_slab + n] = True
        filled = np.minimum(n - np.arange(slabs) * per_slab, per_slab)
        self._live[first : first + slabs] = filled
        self.live_pages[form] += n
        return torch.arange(n) * size + first * self.slab_bytes

    def free(self, form: int, offsets: torch.Tensor) -> None:
        """Give pages back. Raises ValueError on a page that is not held, or named twice, and changes nothing."""
        slab, within = np.divmod(offsets.numpy(), self.slab_bytes)
        column, odd = np.divmod(within, self.page_bytes[form])
        key = slab * self._per_slab[form] + column
        held = self._in_use[form].reshape(-1)
        if odd.any() or not held[key].all() or len(np.unique(key)) != len(key):
            raise ValueError(f"arena: freed a page of form {form} that is not held")
        held[key] = False
        self._live -= np.bincount(slab, minlength=self.slabs)
        self.live_pages[form] -= len(key)
        self._owner[(self._owner == form) & (self._live == 0)] = COMMON

    def read(self, form: int, offsets: torch.Tensor) -> torch.Tensor:
        """Page bytes uint8 [n, page_bytes]."""
        return self._rows(form)[self._index(form, offsets)].view(len(offsets), self.page_bytes[form])

    def write(self, form: int, offsets: torch.Tensor, pages: torch.Tensor) -> None:
        self._rows(form).index_copy_(0, self._index(form, offsets), pages.view(-1, self._unit[form]))

    def _rows(self, form: int) -> torch.Tensor:
        return self.data.view(-1, self._unit[form])

    def _index(self, form: int, offsets: torch.Tensor) -> torch.Tensor:
        unit = self._unit[form]
        return ((offsets // unit)[:, None] + torch.arange(self.page_bytes[form] // unit)).view(-1)

    @property
    def free_bytes(self) -> int:
        """Bytes in slabs nobody holds."""
        return int(np.count_nonzero(self._owner == COMMON)) * self.slab_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes in slabs lent to a form, used or not."""
        return self.pool_bytes - self.free_bytes

    @property
    def live_bytes(self) -> int:
        """Bytes of pages in use."""
        return sum(n * self.page_bytes[form] for form, n in self.live_pages.items())

    @property
    def stranded_bytes(self) -> int:
        """Held but not live: room only the slab's own form can use, and the cut at a slab's end."""
        return self.held_bytes - self.live_bytes

    def unusable_bytes(self, form: int, *, in_a_row: bool = False) -> int:
        """Bytes that hold no page and yet cannot become pages of this form (``in_a_row``: of its longest run)."""
        usable = self.longest_run(form) if in_a_row else self.free_pages(form)
        return self.pool_bytes - self.live_bytes - usable * self.page_bytes[form]

    def check(self) -> None:
        """Raise AssertionError where the books disagree with themselves."""
        counted = np.zeros(self.slabs, dtype=np.int64)
        for form, used in self._in_use.items():
            per_slab = used.sum(axis=1)
            assert not per_slab[self._owner != form].any(), f"form {form} uses a page in a slab it does not hold"
            assert int(per_slab.sum()) == self.live_pages[form], f"form {form}: page count is off"
            counted += per_slab
        assert (counted == self._live).all(), "live pages per slab are off"
        assert not ((self._owner != COMMON) & (self._live == 0)).any(), "an empty slab was not given back"
        wrong = (self._owner != COMMON) & (self._reserve != COMMON) & (self._owner != self._reserve)
        assert not wrong.any(), "a form holds a slab set aside for another"


def reservation(slabs: int, forms: Mapping[int, int], split: Mapping[int, float] | None) -> npt.NDArray[np.int8]:
    """Which form each slab is set aside for; COMMON where any form may borrow it."""
    reserve = np.full(slabs, COMMON, dtype=np.int8)
    if split is None:
        return reserve
    if not set(split) <= set(forms) or min(split.values()) <= 0 or sum(split.values()) > 1.0001:
        raise ValueError(f"arena: split {dict(split)} must give forms that there are a share, together at most 1")
    start = 0
    for form, share in split.items():
        end = min(slabs, start + int(slabs * share))
        reserve[start:end] = form
        start = end
    reserve[start:] = next(iter(split))
    return reserve
