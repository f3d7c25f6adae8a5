"""One layer's keys and values on a device: pages at full precision, pages of other forms, and representatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from engine import forms
from engine.discovery import load
from engine.forms._base import Form
from engine.geometry import KVGeometry

ABSENT = -1
AWAY = -(1 << 31) + 1
"""What `place` says of a page in host memory: it may be chosen, and must be fetched before it is read."""
PAGE_BITS = 27
"""Of a cold page's code: the page's number; above it stands the form's."""
Statistics = Literal["mean", "bounds"]


@cache
def number_of(form: str) -> int:
    """A cold form's number within a code."""
    return forms.cold_names().index(form)


def cold_code(form: str, page: Any) -> Any:
    """What `place` says of page 0, 1, 2... of a cold form, an int or a tensor of them."""
    return -2 - (number_of(form) << PAGE_BITS) - page


def page_number(place: torch.Tensor) -> torch.Tensor:
    """The page that a cold page's code names, int64."""
    return (-2 - place.long()) & ((1 << PAGE_BITS) - 1)


def is_form(place: torch.Tensor, form: str) -> torch.Tensor:
    """Where `place` names pages of that cold form, bool."""
    return (place < ABSENT) & (place > AWAY) & ((-2 - place.long()) >> PAGE_BITS == number_of(form))


@dataclass
class PagedPool:
    """`hot` [pages, 2 (K, V), tokens, d]; `data` uint8, the bytes in which cold pages of the `forms` lie.

    Pages of a form fill slabs of `slab_bytes`, as many as go into one; 0 is a slab for each page. `place` int32
    [blocks, kv_heads]: a hot page, ABSENT, AWAY, or `cold_code`. `reps` [blocks, kv_heads, subs, 1 or 2, d]: the mean
    key of each sub-block, or its lower and upper bound. Both lie in memory by head, then by block, so that one head's
    are near each other. A pool without forms is read by kernels that look for none, which are faster.
    """

    geometry: KVGeometry
    hot: torch.Tensor
    data: torch.Tensor
    place: torch.Tensor
    reps: torch.Tensor
    statistics: Statistics = "mean"
    forms: tuple[str, ...] = ()
    slab_bytes: int = 0

    @classmethod
    def empty(
        cls,
        geometry: KVGeometry,
        blocks: int,
        hot_pages: int,
        cold_bytes: int = 0,
        statistics: Statistics = "mean",
        dtype: torch.dtype = torch.bfloat16,
        device: str | torch.device = "cuda",
        forms: tuple[str, ...] = (),
        slab_bytes: int = 0,
    ) -> PagedPool:
        """A pool with tensors of its own, all pages absent."""
        heads, tokens, dim = geometry.kv_heads, geometry.block_tokens, geometry.head_dim
        vectors = 1 if statistics == "mean" else 2
        shape = (heads, blocks, geometry.subs_per_block, vectors, dim)
        return cls(
            geometry,
            torch.zeros(hot_pages, 2, tokens, dim, dtype=dtype, device=device),
            torch.zeros(cold_bytes, dtype=torch.uint8, device=device),
            torch.full((heads, blocks), ABSENT, dtype=torch.int32, device=device).t(),
            torch.zeros(shape, dtype=dtype, device=device).transpose(0, 1),
            statistics,
            forms,
            slab_bytes,
        )

    def form(self, name: str) -> Form:
        return forms.get(name, on_device=True)

    def page_bytes(self, form: str) -> int:
        return self.form(form).page_bytes(self.geometry)

    def slab(self, form: str) -> tuple[int, int]:
        """Bytes of a slab, and pages of a form that go into it."""
        size = self.page_bytes(form)
        return (self.slab_bytes, self.slab_bytes // size) if self.slab_bytes else (size, 1)

    @property
    def hot_page_bytes(self) -> int:
        return 2 * self.geometry.block_tokens * self.geometry.head_dim * self.hot.element_size()

    @property
    def resident_bytes(self) -> int:
        """All tensors held, tables included."""
        held = (self.hot, self.data, self.place, self.reps)
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def summarise(self, blocks: torch.Tensor) -> None:
        """Representatives of full blocks `blocks` int64 [n] whose pages are hot: the torch twin of `append`."""
        shape = self.geometry
        keys = self.hot[self.place[blocks].long(), 0].float()
        slots = keys.view(len(blocks), shape.kv_heads, shape.subs_per_block, shape.rep_tokens, shape.head_dim)
        if self.statistics == "mean":
            self.reps[blocks] = slots.mean(3, keepdim=True).to(self.reps.dtype)
        else:
            self.reps[blocks] = torch.stack((slots.amin(3), slots.amax(3)), 3).to(self.reps.dtype)

    def offsets(self, form: str, pages: torch.Tensor) -> torch.Tensor:
        """Where pages int64 [...] of a form begin in `data`, bytes int64."""
        slab, per_slab = self.slab(form)
        return pages // per_slab * slab + pages % per_slab * self.page_bytes(form)

    def numbers(self, form: str, offsets: torch.Tensor) -> torch.Tensor:
        """The pages of a form that begin at these offsets. Raises ValueError for more than a code can name."""
        slab, per_slab = self.slab(form)
        if len(self.data) // slab * per_slab >> PAGE_BITS:
            raise ValueError(f"pool: {len(self.data)} bytes hold more {form} pages than a table can name")
        return offsets // slab * per_slab + offsets % slab // self.page_bytes(form)

    def write(self, form: str, pages: torch.Tensor, data: torch.Tensor) -> None:
        """Bytes uint8 [n, page_bytes] into pages int64 [n]."""
        inside = torch.arange(data.shape[1], device=data.device)
        self.data[self.offsets(form, pages)[:, None] + inside] = data

    def read(self, form: str, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """k, v float32 [..., tokens, d] and which tokens are there, bool [..., tokens], of cold pages int64 [...]."""
        shape, codec = self.geometry, self.form(form)
        inside = torch.arange(codec.page_bytes(shape), device=pages.device)
        data = self.data[self.offsets(form, pages.flatten())[:, None] + inside]
        k, v = codec.decode(shape, data)
        rows = (*pages.shape, shape.block_tokens)
        return k.reshape(*rows, -1), v.reshape(*rows, -1), codec.kept(shape, data).view(rows)


def reader(form: str) -> Any:
    """The module of a form's Triton readers (`engine.kernels._cuda.page` says what it holds)."""
    return load(f"engine.forms.{form}", "cuda")


def constants(pool: PagedPool, *, folds: bool) -> dict[str, object]:
    """What kernels must know of a pool's cold forms at compile time; ``folds``: also how to read them fastest."""
    slabs = [pool.slab(form) for form in pool.forms]
    found: dict[str, object] = {
        "FORMS": tuple(number_of(form) for form in pool.forms),
        "TILES": tuple(reader(form).tile for form in pool.forms),
        "PAGES": tuple(pool.page_bytes(form) for form in pool.forms),
        "PER_SLABS": tuple(count for _, count in slabs),
        "SLABS": tuple(size for size, _ in slabs),
        "RANK": pool.geometry.components,
        "KEPT": min(pool.geometry.entries, pool.geometry.block_tokens),
    }
    used = [reader(form).tile for form in pool.forms]
    if folds:
        own = [getattr(reader(form), "fold", None) for form in pool.forms]
        used += [fold or tile for fold, tile in zip(own, used, strict=True)]
        found["OWN"], found["FOLDS"] = tuple(fold is not None for fold in own), tuple(used[len(own) :])
    # Triton keeps compiled kernels by their own source and constants, and of a function in a tuple knows only the name.
    found["SOURCES"] = " ".join(getattr(one, "cache_key", "") for one in used)
    return found
