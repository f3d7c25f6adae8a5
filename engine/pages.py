"""Pages of keys and values in the arena, and the tables that say where each one lies and in which form."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine import forms
from engine.arena import Arena, OutOfBlocks
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.geometry import KVGeometry

if TYPE_CHECKING:
    from engine.kernels._base import Phases

SLAB_PAGES = 4
COLD = forms.codes()["cold_int8"]
# Pages converted at a time: few enough that the copies stay in memory the process already has.
CHUNK = 256
LINE = 64


class Views(NamedTuple):
    """The arena and its tables as arrays, for compiled kernels; made once, they share the tensors' memory.

    A hot page at byte offset o has K in rows o / (4 d) and on, V block_tokens rows later; a cold one likewise in
    `rows_i8` from o / d, and its scales in `floats` from o / 4 + block_tokens * d / 2. `lines` are cache lines.
    """

    rows_f32: npt.NDArray[np.float32]
    rows_i8: npt.NDArray[np.int8]
    floats: npt.NDArray[np.float32]
    page_offset: npt.NDArray[np.int64]
    page_form: npt.NDArray[np.uint8]
    lines: npt.NDArray[np.int8]
    page_lines: npt.NDArray[np.int64]
    """By code: cache lines of a page."""
    page_entries: npt.NDArray[np.int64]
    """By code: entries that the page of a full block holds."""


class Transfer(NamedTuple):
    """Pages on their way between pool and host memory: their code before, where they lie and where they will."""

    code: int
    layer: torch.Tensor
    flat: torch.Tensor
    old: torch.Tensor
    new: torch.Tensor


class Pages:
    """`page_offset` int64 (bytes, -1 none) and `page_form` uint8, both [layers, max_blocks, kv_heads].

    A page whose code has HOST added lies in `host`, an arena of its own in slower memory; its offset is one there.
    With `contiguous` the hot pages of one call to `place_hot` follow one another.
    """

    def __init__(
        self,
        geometry: KVGeometry,
        pool_bytes: int,
        max_blocks: int,
        split: Mapping[str, float] | None = None,
        *,
        host_bytes: int = 0,
        contiguous: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self.geometry, self.contiguous = geometry, contiguous
        codecs = [forms.get(name, on_device=device is not None) for name in forms.names()]
        self.forms = {form.CODE: form for form in codecs}
        sizes = {code: form.page_bytes(geometry) for code, form in self.forms.items()}
        shares = None if split is None else {forms.codes()[name]: share for name, share in split.items()}
        slab_bytes = SLAB_PAGES * geometry.hot_page_bytes
        self.arena = Arena(pool_bytes, slab_bytes, sizes, shares, device)
        self.host = Arena(host_bytes, slab_bytes, sizes) if host_bytes else None
        shape = (geometry.layers, max_blocks, geometry.kv_heads)
        self.page_offset = torch.full(shape, -1, dtype=torch.int64)
        self.page_form = torch.full(shape, NONE, dtype=torch.uint8)
        self.page_counts = np.zeros((geometry.layers, 2 * HOST), dtype=np.int64)
        if device is None:
            self._view(sizes)

    def _view(self, sizes: Mapping[int, int]) -> None:
        """Arrays over the arena and its tables, for kernels that run where the pool lies: in this process's memory."""
        geometry = self.geometry
        self.rows_f32 = self.arena.data.view(torch.float32).view(-1, geometry.head_dim)
        self.rows_i8 = self.arena.data.view(torch.int8).view(-1, geometry.head_dim)
        self.floats = self.arena.data.view(torch.float32)
        page_lines, entries = torch.zeros(2, 2 * HOST, dtype=torch.int64)
        for code, size in sizes.items():
            page_lines[code] = size // LINE
            entries[code] = self.forms[code].entries(geometry)
        lines = self.arena.data.view(torch.int8).view(-1, LINE)
        arrays = (
            self.rows_f32,
            self.rows_i8,
            self.floats,
            self.page_offset,
            self.page_form,
            lines,
            page_lines,
            entries,
        )
        self.views = Views(*(tensor.numpy() for tensor in arrays))

    def place_hot(self, ids: list[int]) -> None:
        """Give blocks without pages a hot page for every layer and head. Raises OutOfBlocks."""
        index = torch.tensor(ids, dtype=torch.int64)
        layers, heads = self.geometry.layers, self.geometry.kv_heads
        allocate = self.arena.allocate_run if self.contiguous else self.arena.allocate
        offsets = allocate(HOT, len(ids) * layers * heads)
        self.page_offset[:, index] = offsets.view(len(ids), layers, heads).transpose(0, 1)
        self.page_form[:, index] = HOT
        self.page_counts[:, HOT] += len(ids) * heads

    def drop(self, ids: list[int]) -> None:
        """Free whatever pages these blocks have."""
        index = torch.tensor(ids, dtype=torch.int64)
        held, offsets = self.page_form[:, index], self.page_offset[:, index]
        for code in torch.unique(held).tolist():
            if code == NONE:
                continue
            mask = held == code
            self.page_counts[:, code] -= mask.sum((1, 2)).numpy()
            if code != EVICTED:
                self._arena(code).free(code % HOST, offsets[mask])
        self.page_offset[:, index] = -1
        self.page_form[:, index] = NONE

    def write_rows(self, layer: int, ids: np.ndarray, slots: np.ndarray, k: torch.Tensor, v: torch.Tensor) -> None:
        """k, v [n, kv_heads, head_dim] into `slots` of blocks `ids`, int64 [n]. Raises ValueError unless hot."""
        offsets = self.views.page_offset[layer][ids]
        if (self.views.page_form[layer][ids] != HOT).any():
            raise ValueError(f"cache: write to a page that is not hot (layer {layer})")
        dim, tokens = self.geometry.head_dim, self.geometry.block_tokens
        rows = (offsets // (4 * dim) + slots[:, None]).reshape(-1)
        self.views.rows_f32[rows] = k.reshape(-1, dim).numpy()
        self.views.rows_f32[rows + tokens] = v.reshape(-1, dim).numpy()

    def demote(self, layer_idx: torch.Tensor, block_idx: torch.Tensor, head_idx: torch.Tensor, code: int = COLD) -> int:
        """Hot to a cold form, index tensors int64 [n]; bytes written. OutOfBlocks, ValueError: nothing was changed."""
        return self._move(HOT, code, layer_idx, block_idx, head_idx)

    def promote(
        self, layer_idx: torch.Tensor, block_idx: torch.Tensor, head_idx: torch.Tensor, code: int = COLD
    ) -> int:
        """A cold form to hot; bytes written. Raises as `demote` does, also for a form that lacks tokens."""
        if not self.forms[code].WHOLE and len(layer_idx):
            raise ValueError(f"cache: pages of {self.forms[code].NAME} cannot become hot")
        return self._move(code, HOT, layer_idx, block_idx, head_idx)

    def begin(self, code: int, layer: torch.Tensor, block: torch.Tensor, head: torch.Tensor) -> Transfer:
        """Reserve room in the other memory for pages of `code` (with HOST or without), int64 [n] each.

        Until `commit` the pages are where they were, and must be neither freed nor moved. Raises OutOfBlocks,
        ValueError, changing nothing.
        """
        flat = flat_index(self.page_form, layer, block, head)
        if (self.page_form.view(-1)[flat] != code).any():
            raise ValueError(f"cache: expected only pages of code {code} to relocate")
        new = self._arena(code ^ HOST).allocate(code % HOST, len(flat)) if len(flat) else flat
        return Transfer(code, layer, flat, self.page_offset.view(-1)[flat], new)

    def copy(self, transfer: Transfer) -> int:
        """Copy the bytes as they are, from any thread; how many."""
        code, form = transfer.code, transfer.code % HOST
        self._arena(code ^ HOST).write(form, transfer.new, self._arena(code).read(form, transfer.old))
        return len(transfer.old) * self.arena.page_bytes[form]

    def commit(self, transfer: Transfer) -> None:
        """The pages are in the other memory from now on."""
        code = transfer.code
        self._arena(code).free(code % HOST, transfer.old)
        self.page_offset.view(-1)[transfer.flat] = transfer.new
        self.page_form.view(-1)[transfer.flat] = code ^ HOST
        count_moved(self.page_counts, transfer.layer, code, code ^ HOST)

    def lacks_tokens(self, code: int) -> bool:
        """Whether a page of this code (with HOST or without) holds only some of its block's tokens."""
        return code % HOST in self.forms and not self.forms[code % HOST].WHOLE

    def _arena(self, code: int) -> Arena:
        if code < HOST:
            return self.arena
        assert self.host is not None
        return self.host

    def evict(self, layer_idx: torch.Tensor, block_idx: torch.Tensor, head_idx: torch.Tensor) -> int:
        """Drop pages of any live form for good; bytes freed. Raises ValueError for a page that is not there."""
        flat = flat_index(self.page_form, layer_idx, block_idx, head_idx)
        held = self.page_form.view(-1)[flat]
        if ((held == NONE) | (held == EVICTED)).any():
            raise ValueError("cache: evict of a page that is not there")
        freed = 0
        for code in torch.unique(held).tolist():
            mask = held == code
            self._arena(code).free(code % HOST, self.page_offset.view(-1)[flat[mask]])
            count_moved(self.page_counts, layer_idx[mask], code, EVICTED)
            freed += int(mask.sum()) * self.arena.page_bytes[code % HOST]
        self.page_offset.view(-1)[flat] = -1
        self.page_form.view(-1)[flat] = EVICTED
        return freed

    def read(self, layer: int, ids: torch.Tensor, phases: Phases | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v float32 [n, kv_heads, block_tokens, head_dim] of blocks `ids` [n]; zeros where there is no page."""
        shape = self.geometry
        held, offsets = self.page_form[layer, ids], self.page_offset[layer, ids]
        hot_pages = self.floats.view(-1, 2, shape.block_tokens, shape.head_dim)
        hot = held == HOT
        if bool(hot.all()):
            both = hot_pages[offsets // shape.hot_page_bytes]
            return both[:, :, 0], both[:, :, 1]
        k = torch.zeros(len(ids), shape.kv_heads, shape.block_tokens, shape.head_dim)
        v = torch.zeros_like(k)
        both = hot_pages[offsets[hot] // shape.hot_page_bytes]
        k[hot], v[hot] = both[:, 0], both[:, 1]
        for code in torch.unique(held).tolist():
            if code not in (NONE, HOT, EVICTED):
                mask, form = held == code, self.forms[code % HOST]
                started = perf_counter()
                k[mask], v[mask] = form.decode(shape, self._arena(code).read(code % HOST, offsets[mask]))
                if phases is not None:
                    phases.decompress += perf_counter() - started
        return k, v

    def absent(self, layer: int, block_table: torch.Tensor, context_len: int) -> torch.Tensor | None:
        """bool [context_len, kv_heads], True where a token's page is gone; None when all are there."""
        ids = block_table[: self.geometry.blocks_for(context_len)].long()
        held, tokens = self.page_form[layer, ids], self.geometry.block_tokens
        gone = held == EVICTED
        partial = [code for code in torch.unique(held).tolist() if self.lacks_tokens(code)]
        if not (partial or gone.any()):
            return None
        absent = gone[..., None].repeat(1, 1, tokens)
        for code in partial:
            mask = held == code
            pages = self._arena(code).read(code % HOST, self.page_offset[layer, ids][mask])
            absent[mask] = ~self.forms[code % HOST].kept(self.geometry, pages).cpu()
        return absent.transpose(1, 2).flatten(0, 1)[:context_len]

    def _move(self, source: int, target: int, layer: torch.Tensor, block: torch.Tensor, head: torch.Tensor) -> int:
        flat, n = flat_index(self.page_form, layer, block, head), len(layer)
        if n == 0:
            return 0
        if (self.page_form.view(-1)[flat] != source).any():
            raise ValueError(f"cache: expected only {self.forms[source].NAME} pages to make {self.forms[target].NAME}")
        old = self.page_offset.view(-1)[flat]
        if not self.arena.can_exchange(source, old, target, n):
            raise OutOfBlocks(f"no room for {n} {self.forms[target].NAME} pages")
        size = self.arena.page_bytes[target]
        pages = torch.empty(n, size, dtype=torch.uint8)
        for i in range(0, n, CHUNK):
            k, v = self.forms[source].decode(self.geometry, self.arena.read(source, old[i : i + CHUNK]))
            pages[i : i + CHUNK] = self.forms[target].encode(self.geometry, k, v)
        self.arena.free(source, old)
        new = self.arena.allocate(target, n)
        self.arena.write(target, new, pages)
        self.page_offset.view(-1)[flat] = new
        self.page_form.view(-1)[flat] = target
        count_moved(self.page_counts, layer, source, target)
        return n * size


def flat_index(pages: torch.Tensor, layer: torch.Tensor, block: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Where pages lie in a flattened table, int64 [n]. Raises ValueError where one is named twice."""
    _, blocks, heads = pages.shape
    flat = (layer * blocks + block) * heads + head
    if len(np.unique(flat.numpy())) != len(flat):
        raise ValueError("cache: the same page is named twice")
    return flat


def count_moved(counts: npt.NDArray[np.int64], layer: torch.Tensor, source: int, target: int) -> None:
    """Book pages of these layers from one code to another; counts int64 [layers, codes]."""
    pages = np.bincount(layer.numpy(), minlength=len(counts))
    counts[:, source] -= pages
    counts[:, target] += pages
