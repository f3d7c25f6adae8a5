"""The KV cache: blocks shared by all layers and heads, a table of their pages, and a pool in which those lie.

The table stays with the host and is the truth; the pool knows how bytes are stored, summed up and read where it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from engine import forms
from engine.arena import Arena, OutOfBlocks
from engine.blocks import Blocks
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.geometry import KVGeometry
from engine.pool import HostPool, Pool
from engine.timeline import Mark

SLAB_PAGES = 4
COLD = forms.codes()["cold_int8"]
PART = 8192
"""Pages changed at a time: so many bytes beside the pool, and no more, does a change of form need."""
OFFSET_BYTES, FORM_BYTES = 8, 1
BLOCK_BYTES = 9
"""Reference count, filled slots, and whether there are representatives."""


@dataclass(frozen=True)
class Entries:
    """Entries held per layer, by tier, summed over kv heads and divided by them: the filled slots of live pages.

    A merged page holds one; pages in host memory count as cold.
    """

    hot: list[float]
    cold: list[float]


class Transfer(NamedTuple):
    """Pages on their way between pool and host memory: their code before, where they lie and where they will."""

    code: int
    layer: torch.Tensor
    flat: torch.Tensor
    old: torch.Tensor
    new: torch.Tensor


class KVCache:
    """Everything a model's attention remembers. `page_offset` int64 (bytes, -1 none) and `page_form` uint8, both
    [layers, max_blocks, kv_heads]; `page_counts` int64 [layers, codes] of them.

    A page whose code has HOST added lies in `host`, an arena of its own in slower memory; its offset is one there.
    `split` (form name -> share of the pool) fixes each form's part. With `contiguous` the hot pages of one call to
    `allocate` follow one another.
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
        pool: Callable[[KVCache], Pool] = HostPool,
    ) -> None:
        """The arena lies on ``device`` (the CPU); ``pool`` says how it is used there."""
        self.geometry, self.contiguous = geometry, contiguous
        self.device = device or torch.device("cpu")
        on_device = pool is not HostPool
        self.forms = {form.CODE: form for form in (forms.get(name, on_device=on_device) for name in forms.names())}
        sizes = {code: form.page_bytes(geometry) for code, form in self.forms.items()}
        shares = None if split is None else {forms.codes()[name]: share for name, share in split.items()}
        slab_bytes = SLAB_PAGES * geometry.hot_page_bytes
        self.arena = Arena(pool_bytes, slab_bytes, sizes, shares, device)
        self.host = Arena(host_bytes, slab_bytes, sizes) if host_bytes else None
        shape = (geometry.layers, max_blocks, geometry.kv_heads)
        self.page_offset = torch.full(shape, -1, dtype=torch.int64)
        self.page_form = torch.full(shape, NONE, dtype=torch.uint8)
        self.page_counts = np.zeros((geometry.layers, 2 * HOST), dtype=np.int64)
        # By code: bytes of a page, and how many of them are not keys and values.
        self.page_sizes = np.zeros((2 * HOST, 2), dtype=np.int64)
        for code, form in self.forms.items():
            self.page_sizes[[code, code + HOST]] = sizes[code], form.overhead_bytes(geometry)
        self.blocks = Blocks(max_blocks)
        self.ref_counts = self.blocks.refs
        self.tables: dict[str, torch.Tensor] = {}
        """What policies keep of each page, [layers, max_blocks, kv_heads] each: counted, and theirs to fill."""
        self.pool = pool(self)
        self.representatives = self.pool.representatives

    # Blocks

    def can_allocate(self, n_blocks: int) -> bool:
        """Whether `allocate(n_blocks)` would succeed now."""
        pages = n_blocks * self.geometry.pages_per_block
        room = self.arena.longest_run(HOT) if self.contiguous else self.arena.free_pages(HOT)
        return n_blocks <= self.blocks.free and pages <= room

    @property
    def most_blocks(self) -> int:
        """Blocks at full precision that the empty cache could hold: no request can need more."""
        return min(len(self.ref_counts), self.arena.most_pages(HOT) // self.geometry.pages_per_block)

    def allocate(self, n_blocks: int) -> list[int]:
        """Ids of blocks with hot pages and one reference. Raises OutOfBlocks, changing nothing."""
        ids = self.blocks.take(n_blocks)
        layers, heads = self.geometry.layers, self.geometry.kv_heads
        take = self.arena.allocate_run if self.contiguous else self.arena.allocate
        try:
            offsets = take(HOT, n_blocks * layers * heads)
        except BaseException:
            self.blocks.release(ids)
            raise
        index = torch.tensor(ids, dtype=torch.int64)
        self.page_offset[:, index] = offsets.view(n_blocks, layers, heads).transpose(0, 1)
        self.page_form[:, index] = HOT
        self.page_counts[:, HOT] += n_blocks * heads
        self.pool.changed(index)
        return ids

    def retain(self, ids: Sequence[int]) -> None:
        self.blocks.retain(ids)

    def release(self, ids: Sequence[int]) -> list[int]:
        """Drop one reference each; ids whose pages were freed."""
        gone = self.blocks.release(ids)
        if gone:
            index = torch.tensor(gone, dtype=torch.int64)
            held, offsets = self.page_form[:, index], self.page_offset[:, index]
            for code in torch.unique(held).tolist():
                if code != NONE:
                    mask = held == code
                    self.page_counts[:, code] -= mask.sum((1, 2)).numpy()
                    if code != EVICTED:
                        self.arena_of(code).free(code % HOST, offsets[mask])
            self.page_offset[:, index] = -1
            self.page_form[:, index] = NONE
            self.representatives.forget(index.numpy())
        return gone

    # Rows

    def write(self, layer: int, block_ids: torch.Tensor, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """k, v [n, kv_heads, head_dim] to `slots` of `block_ids`, both int64 [n]. Raises ValueError unless hot.

        Representatives of a block written to are forgotten; a slot counts as filled once the last layer wrote it.
        """
        self.pool.store(layer, block_ids, slots, k, v)
        self.representatives.forget(block_ids.numpy())
        if layer == self.geometry.layers - 1:
            self.blocks.fill(block_ids.numpy(), slots.numpy())

    def wrote(self, ids: np.ndarray, slots: np.ndarray, *, summarised: bool = True) -> None:
        """Rows were stored in all layers by kernels; ``summarised``: as the newest of their requests, one each."""
        self.representatives.forget(ids)
        if summarised and self.pool.SUMMARISES:
            self.representatives.learn(torch.from_numpy(ids[slots == self.geometry.block_tokens - 1]))
        self.blocks.fill(ids, slots)

    def finalise(self, block_ids: Sequence[int] | torch.Tensor, filled: torch.Tensor | None = None) -> None:
        """Make representatives for all layers from the first `filled` int64 [n] slots of each hot block (all)."""
        ids = torch.as_tensor(block_ids, dtype=torch.int64)
        if filled is None:
            filled = torch.full((len(ids),), self.geometry.block_tokens)
        learnt = self.pool.summarise(ids, filled)
        if len(learnt):
            self.representatives.learn(learnt)

    def read(self, layer: int, ids: torch.Tensor, mark: Mark | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v at full precision, [n, kv_heads, block_tokens, head_dim], of blocks `ids` [n]; zeros for no page."""
        return self.pool.read(layer, ids, mark)

    def read_dense(
        self, layer: int, block_table: torch.Tensor, context_len: int, mark: Mark | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v [context_len, kv_heads, head_dim] of one request; evicted pages read as zeros (see `absent`).

        `block_table` int [blocks]; what is dequantised on the host is marked ``decompress``.
        """
        shape = self.geometry
        ids = block_table[: shape.blocks_for(context_len)].long()
        k, v = (pages.transpose(1, 2) for pages in self.pool.read(layer, ids, mark))
        flat = (-1, shape.kv_heads, shape.head_dim)
        return k.reshape(flat)[:context_len], v.reshape(flat)[:context_len]

    def absent(self, layer: int, block_table: torch.Tensor, context_len: int) -> torch.Tensor | None:
        """bool [context_len, kv_heads], True where a token's page is gone; None when all are there."""
        ids = block_table[: self.geometry.blocks_for(context_len)].long().cpu()
        held, tokens = self.page_form[layer, ids], self.geometry.block_tokens
        gone = held == EVICTED
        partial = [code for code in torch.unique(held).tolist() if self.lacks_tokens(code)]
        if not (partial or gone.any()):
            return None
        absent = gone[..., None].repeat(1, 1, tokens)
        for code in partial:
            mask = held == code
            pages = self.arena_of(code).read(code % HOST, self.page_offset[layer, ids][mask])
            absent[mask] = ~self.forms[code % HOST].kept(self.geometry, pages).cpu()
        return absent.transpose(1, 2).flatten(0, 1)[:context_len].to(self.device)

    # Pages

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

    def evict(self, layer_idx: torch.Tensor, block_idx: torch.Tensor, head_idx: torch.Tensor) -> int:
        """Drop pages of any live form for good; bytes freed. Raises ValueError for a page that is not there."""
        flat = flat_index(self.page_form, layer_idx, block_idx, head_idx)
        held = self.page_form.view(-1)[flat]
        if ((held == NONE) | (held == EVICTED)).any():
            raise ValueError("cache: evict of a page that is not there")
        freed = 0
        for code in torch.unique(held).tolist():
            mask = held == code
            self.arena_of(code).free(code % HOST, self.page_offset.view(-1)[flat[mask]])
            self._place(flat[mask], layer_idx[mask], code, EVICTED, -1)
            freed += int(mask.sum()) * self.arena.page_bytes[code % HOST]
        self.pool.changed(block_idx)
        return freed

    def begin(self, code: int, layer: torch.Tensor, block: torch.Tensor, head: torch.Tensor) -> Transfer:
        """Reserve room in the other memory for pages of `code` (with HOST or without), int64 [n] each.

        Until `commit` the pages are where they were, and must be neither freed nor moved. Raises OutOfBlocks,
        ValueError, changing nothing.
        """
        flat = flat_index(self.page_form, layer, block, head)
        if (self.page_form.view(-1)[flat] != code).any():
            raise ValueError(f"cache: expected only pages of code {code} to relocate")
        new = self.arena_of(code ^ HOST).allocate(code % HOST, len(flat)) if len(flat) else flat
        return Transfer(code, layer, flat, self.page_offset.view(-1)[flat], new)

    def copy(self, transfer: Transfer) -> int:
        """Copy the bytes as they are, from any thread; how many."""
        return self.pool.copy(transfer)

    def commit(self, transfer: Transfer) -> None:
        """The pages are in the other memory from now on."""
        code = transfer.code
        self.arena_of(code).free(code % HOST, transfer.old)
        self._place(transfer.flat, transfer.layer, code, code ^ HOST, transfer.new)
        self.pool.changed(transfer.flat // self.geometry.kv_heads % self.page_form.shape[1])

    def arena_of(self, code: int) -> Arena:
        """Where pages of this code lie."""
        if code < HOST:
            return self.arena
        assert self.host is not None
        return self.host

    def lacks_tokens(self, code: int) -> bool:
        """Whether a page of this code (with HOST or without) holds only some of its block's tokens."""
        return code % HOST in self.forms and not self.forms[code % HOST].WHOLE

    def cold_forms(self) -> tuple[str, ...]:
        """Cold forms of which there are pages now, here or in host memory."""
        live = self.page_counts.sum(0)
        return tuple(form.NAME for code, form in self.forms.items() if code != HOT and live[code] + live[code + HOST])

    def pools(self, cold_forms: tuple[str, ...]) -> Sequence[Any]:
        """Every layer as the operators of its device take it, those that look for pages of these cold forms only."""
        return self.pool.layers(cold_forms)

    def sync(self) -> None:
        """Let the pool's device know where the pages lie."""
        self.pool.sync()

    def _move(self, source: int, target: int, layer: torch.Tensor, block: torch.Tensor, head: torch.Tensor) -> int:
        flat, n = flat_index(self.page_form, layer, block, head), len(layer)
        if n == 0:
            return 0
        if (self.page_form.view(-1)[flat] != source).any():
            raise ValueError(f"cache: expected only {self.forms[source].NAME} pages to make {self.forms[target].NAME}")
        old = self.page_offset.view(-1)[flat]
        if not self.arena.can_exchange(source, old, target, n):
            raise OutOfBlocks(f"no room for {n} {self.forms[target].NAME} pages")
        self.pool.changed(block)
        parts = [slice(i, i + PART) for i in range(0, n, PART)]
        for part in parts:
            pages = self.pool.converted(self.forms[source], self.forms[target], old[part])
            self.arena.free(source, old[part])
            new = self.arena.allocate(target, len(pages))
            self.arena.write(target, new, pages)
            self._place(flat[part], layer[part], source, target, new)
        return n * self.arena.page_bytes[target]

    def _place(self, flat: torch.Tensor, layer: torch.Tensor, source: int, target: int, offset: Any) -> None:
        """Book pages of one code as of another, at ``offset``."""
        self.page_offset.view(-1)[flat] = offset
        self.page_form.view(-1)[flat] = target
        pages = np.bincount(layer.numpy(), minlength=len(self.page_counts))
        self.page_counts[:, source] -= pages
        self.page_counts[:, target] += pages

    # What it weighs

    def weighed(self) -> tuple[list[float], int]:
        """Resident bytes by layer, and how many of all layers' are overhead.

        Resident are live pages of every form in the pool, representatives, and an even share of the live rows of all
        tables; overhead is what of it is not keys and values: representatives, scales, tables.
        """
        pages, beside = self.page_counts[:, :HOST] @ self.page_sizes[:HOST], self._beside_bytes()
        share = beside / self.geometry.layers
        sizes, scales = pages.T.tolist()
        return [size + share for size in sizes], beside + sum(scales)

    def resident_bytes_by_layer(self) -> list[float]:
        """See `weighed`."""
        return self.weighed()[0]

    def resident_bytes(self) -> int:
        return round(sum(self.weighed()[0]))

    def overhead_bytes(self) -> int:
        """See `weighed`."""
        return self.weighed()[1]

    def bytes_of(self, ids: Sequence[int]) -> int:
        """Bytes of these blocks' pages, in the pool and in host memory, as they are."""
        held = self.page_form[:, torch.tensor(ids, dtype=torch.int64)].flatten()
        return int(np.bincount(held.numpy(), minlength=2 * HOST) @ self.page_sizes[:, 0])

    def _beside_bytes(self) -> int:
        """Representatives and live rows of all tables, all layers."""
        pages = self.geometry.pages_per_block
        table = OFFSET_BYTES + FORM_BYTES + self.pool.PLACE_BYTES
        table += sum([one.element_size() for one in self.tables.values()])
        tables = self.blocks.live * (pages * table + BLOCK_BYTES)
        return tables + self.representatives.count * pages * self.pool.representative_bytes

    def entries_by_layer(self) -> Entries:
        """Hot and cold entries per layer: a block that is not full is hot in all of its pages."""
        tokens, heads = self.geometry.block_tokens, self.geometry.kv_heads
        short = int((tokens - self.blocks.filled[self.blocks.live_ids()]).sum())
        live = self.page_counts[:, :HOST] + self.page_counts[:, HOST:]
        cold = np.zeros(len(live))
        for code, form in self.forms.items():
            if code != HOT:
                cold += live[:, code] * form.entries(self.geometry) / heads
        return Entries((live[:, HOT] * tokens / heads - short).tolist(), cold.tolist())

    def check(self) -> None:
        """Raise AssertionError where tables, counts and arena disagree."""
        self.blocks.check()
        places = [(0, self.arena)] if self.host is None else [(0, self.arena), (HOST, self.host)]
        sizes = torch.from_numpy(self.page_sizes[:, 0])
        for where, arena in places:
            arena.check()
            for code in self.forms:
                held = self.page_form == code + where
                assert int(held.sum()) == arena.live_pages[code], f"form {code + where}: tables and arena disagree"
                assert (self.page_counts[:, code + where] == held.sum((1, 2)).numpy()).all(), "counts are off"
            here = (self.page_offset >= 0) & (self.page_form // HOST == where // HOST)
            ends = self.page_offset + sizes[self.page_form.long()]
            spans = torch.stack((self.page_offset[here], ends[here]), 1)
            spans = spans[spans[:, 0].argsort()]
            assert bool((spans[1:, 0] >= spans[:-1, 1]).all()), "two pages overlap"
        live = (self.page_form != NONE) & (self.page_form != EVICTED)
        assert bool((live == (self.page_offset >= 0)).all()), "an offset without a form"
        assert not self.page_form[:, self.blocks.refs == 0].any(), "a free block has pages"
        assert not self.representatives.known[self.blocks.refs == 0].any(), "a free block has representatives"


def flat_index(pages: torch.Tensor, layer: torch.Tensor, block: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Where pages lie in a flattened table, int64 [n]. Raises ValueError where one is named twice."""
    _, blocks, heads = pages.shape
    flat = (layer * blocks + block) * heads + head
    if len(np.unique(flat.numpy())) != len(flat):
        raise ValueError("cache: the same page is named twice")
    return flat
