"""One stretch of bytes shared by all KV forms: slabs are lent to a form, cut into its pages, and come back empty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from engine.slabs import COMMON, Slabs

Ints = npt.NDArray[np.int64]


class OutOfBlocks(Exception):
    """The pool cannot hold what was asked for; nothing was changed."""


class Arena(Slabs):
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
        device: torch.device | None = None,
    ) -> None:
        reserve = reservation(pool_bytes // slab_bytes, page_bytes, split)
        super().__init__(pool_bytes, slab_bytes, page_bytes, reserve, device)

    def _borrowable(self, form: int) -> Ints:
        return np.flatnonzero((self._owner == COMMON) & ((self._reserve == COMMON) | (self._reserve == form)))

    def _room(self, form: int) -> int:
        """Free pages in slabs the form already holds."""
        return int(np.count_nonzero(self._owner == form)) * self._per_slab[form] - self.live_pages[form]

    def most_pages(self, form: int) -> int:
        """Pages of this form that the arena could hold if it held nothing else."""
        return int(np.count_nonzero((self._reserve == COMMON) | (self._reserve == form))) * self._per_slab[form]

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
        usable = np.zeros(self.slabs + 2, dtype=np.bool_)
        usable[self._borrowable(form) + 1] = True
        ends = np.flatnonzero(~usable)
        return (int((ends[1:] - ends[:-1]).max()) - 1) * self._per_slab[form]

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

    def unusable_bytes(self, form: int, *, in_a_row: bool = False) -> int:
        """Bytes that hold no page and yet cannot become pages of this form (``in_a_row``: of its longest run)."""
        usable = self.longest_run(form) if in_a_row else self.free_pages(form)
        return self.pool_bytes - self.live_bytes - usable * self.page_bytes[form]


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
