"""The arena's bytes in slabs: who holds which, what lies where, and the books over both."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from engine import memory

COMMON = 0


class Slabs:
    """`data`, a uint8 tensor of whole slabs; a slab is lent to one form at a time, or to none (COMMON).

    `reserve` int8 [slabs] says which form each slab is set aside for, COMMON where any may borrow it.
    """

    def __init__(
        self,
        pool_bytes: int,
        slab_bytes: int,
        page_bytes: Mapping[int, int],
        reserve: npt.NDArray[np.int8],
        device: torch.device | None = None,
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
        on_device = device is not None and device.type != "cpu"
        self.data = (
            torch.zeros(self.pool_bytes, dtype=torch.uint8, device=device)
            if on_device
            else memory.zeros(self.pool_bytes)
        )
        # The largest piece at whose multiples every page of the form begins: fewer indices to copy a page by.
        self._unit = {form: int(np.gcd(slab_bytes, size)) for form, size in page_bytes.items()}
        self._per_slab = {form: slab_bytes // size for form, size in page_bytes.items()}
        self._in_use = {form: np.zeros((self.slabs, n), dtype=np.bool_) for form, n in self._per_slab.items()}
        self._owner = np.full(self.slabs, COMMON, dtype=np.int8)
        self._live = np.zeros(self.slabs, dtype=np.int64)
        self.live_pages = dict.fromkeys(page_bytes, 0)
        self._reserve = reserve

    def read(self, form: int, offsets: torch.Tensor) -> torch.Tensor:
        """Page bytes uint8 [n, page_bytes]."""
        return self._rows(form)[self._index(form, offsets)].view(len(offsets), self.page_bytes[form])

    def write(self, form: int, offsets: torch.Tensor, pages: torch.Tensor) -> None:
        self._rows(form).index_copy_(0, self._index(form, offsets), pages.view(-1, self._unit[form]))

    def _rows(self, form: int) -> torch.Tensor:
        return self.data.view(-1, self._unit[form])

    def _index(self, form: int, offsets: torch.Tensor) -> torch.Tensor:
        unit = self._unit[form]
        places = ((offsets // unit)[:, None] + torch.arange(self.page_bytes[form] // unit)).view(-1)
        return places.to(self.data.device)

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
