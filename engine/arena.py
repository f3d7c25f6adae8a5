"""One stretch of bytes shared by all KV forms: slabs are lent to a form, cut into its pages, and come back empty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from engine.slabs import COMMON, Slabs

SCANNED = 1 << 15
"""Slabs looked through at a time."""
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
        self._set_aside = split is not None

    def _borrowable(self, form: int) -> Ints:
        return np.flatnonzero(self._free_for(form))

    def _free_for(self, form: int) -> npt.NDArray[np.bool_]:
        free: npt.NDArray[np.bool_] = self._owner == COMMON
        if self._set_aside:
            free &= (self._reserve == COMMON) | (self._reserve == form)
        return free

    def _room(self, form: int) -> int:
        """Free pages in slabs the form already holds."""
        return int(np.count_nonzero(self._owner == form)) * self._per_slab[form] - self.live_pages[form]

    def most_pages(self, form: int) -> int:
        """Pages of this form that the arena could hold if it held nothing else."""
        return int(np.count_nonzero((self._reserve == COMMON) | (self._reserve == form))) * self._per_slab[form]

    def free_pages(self, form: int) -> int:
        """How many pages `allocate` could still give this form."""
        return self._room(form) + int(np.count_nonzero(self._free_for(form))) * self._per_slab[form]

    def can_allocate(self, form: int, n: int) -> bool:
        return n <= self.free_pages(form)

    def can_exchange(self, give: int, offsets: torch.Tensor, take: int, n: int) -> bool:
        """Whether `n` pages of form `take` fit once these pages of form `give` are freed."""
        slab, freed = np.unique(offsets.numpy() // self.slab_bytes, return_counts=True)
        reserve = self._reserve[slab]
        emptied = (self._owner[slab] == give) & (self._live[slab] == freed) & ((reserve == COMMON) | (reserve == take))
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
        open_slabs = self._fullest(form, n)
        row, column = np.nonzero(~self._in_use[form][open_slabs])
        slab, column = open_slabs[row[:n]], column[:n]
        self._in_use[form][slab, column] = True
        np.add.at(self._live, slab, 1)
        self.live_pages[form] += n
        return torch.from_numpy(slab * self.slab_bytes + column * self.page_bytes[form])

    def _fullest(self, form: int, n: int) -> Ints:
        """The fullest slabs of a form that together have room for `n` pages, or a little more.

        Many are looked through in parts, one degree of fullness at a time: sorting them takes milliseconds.
        """
        per_slab = self._per_slab[form]
        is_open = (self._owner == form) & (self._live < per_slab)
        if np.count_nonzero(is_open) <= SCANNED:
            open_slabs = np.flatnonzero(is_open)
            open_slabs = open_slabs[np.argsort(-self._live[open_slabs], kind="stable")]
            needed = int(np.searchsorted(np.cumsum(per_slab - self._live[open_slabs]), n)) + 1
            return open_slabs[:needed]
        found, short = [np.empty(0, np.int64)], n
        for level in range(per_slab - 1, -1, -1):
            for start in range(0, self.slabs, SCANNED):
                part = slice(start, start + SCANNED)
                here = np.flatnonzero(is_open[part] & (self._live[part] == level))
                found.append(here[: -(-short // (per_slab - level))] + start)
                short -= len(found[-1]) * (per_slab - level)
                if short <= 0:
                    return np.concatenate(found)
        return np.concatenate(found)

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
        np.subtract.at(self._live, slab, 1)
        self.live_pages[form] -= len(key)
        self._owner[slab[self._live[slab] == 0]] = COMMON

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
