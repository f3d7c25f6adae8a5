"""The KV cache: blocks shared by all layers and heads, their pages in the arena, and what all of it weighs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.blocks import Blocks
from engine.forms import EVICTED, HOST, HOT, NONE
from engine.geometry import KVGeometry
from engine.pages import Pages
from engine.representatives import Known, Representatives

if TYPE_CHECKING:
    from engine.kernels._base import Phases

CHUNK = 64
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


class KVCache(Pages):
    """Everything a model's attention remembers. `split` (form name -> share of the pool) fixes each form's part."""

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
        """With ``device`` the arena lies there, and what reads it is the subclass's business."""
        super().__init__(
            geometry, pool_bytes, max_blocks, split, host_bytes=host_bytes, contiguous=contiguous, device=device
        )
        self.blocks = Blocks(max_blocks)
        self.ref_counts = self.blocks.refs
        # By form: bytes of a page, and how many of them are not keys and values.
        self._page_sizes = np.zeros((self.page_counts.shape[1], 2), dtype=np.int64)
        for code, form in self.forms.items():
            self._page_sizes[code] = self.arena.page_bytes[code], form.overhead_bytes(geometry)
        self.representatives: Known = self._represent(max_blocks)

    def _represent(self, max_blocks: int) -> Known:
        """What selection reads instead of keys, in this process's memory."""
        made = Representatives(self.geometry, max_blocks)
        self.rep_q, self.rep_scale = made.q, made.scale
        # Four dimensions, since numba recognises arrays of more than five only slowly, at each call.
        self.rep_views = (
            self.rep_q.flatten(3).numpy(),
            self.rep_scale.numpy(),
            made.known.numpy(),
        )
        return made

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
        try:
            self.place_hot(ids)
        except BaseException:
            self.blocks.release(ids)
            raise
        return ids

    def retain(self, ids: Sequence[int]) -> None:
        self.blocks.retain(ids)

    def release(self, ids: Sequence[int]) -> list[int]:
        """Drop one reference each; ids whose pages were freed."""
        gone = self.blocks.release(ids)
        if gone:
            self.drop(gone)
            self.representatives.forget(np.asarray(gone))
        return gone

    def write(self, layer: int, block_ids: torch.Tensor, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """k, v [n, kv_heads, head_dim] to `slots` of `block_ids`, both int64 [n]. Raises ValueError unless hot.

        Representatives of a block written to are forgotten; a slot counts as filled once the last layer wrote it.
        """
        ids, places = block_ids.numpy(), slots.numpy()
        self.write_rows(layer, ids, places, k, v)
        self.representatives.forget(ids)
        if layer == self.geometry.layers - 1:
            self.blocks.fill(ids, places)

    def finalise(self, block_ids: Sequence[int] | torch.Tensor, filled: torch.Tensor | None = None) -> None:
        """Compute representatives for all layers from the first `filled` int64 [n] slots of each block (all)."""
        ids = torch.as_tensor(block_ids, dtype=torch.int64)
        if filled is None:
            filled = torch.full((len(ids),), self.geometry.block_tokens)
        ids, filled = ids[filled > 0], filled[filled > 0]
        if len(ids) == 0:
            return
        stored = self.representatives
        assert isinstance(stored, Representatives)
        for layer in range(self.geometry.layers):
            for part, count in zip(torch.split(ids, CHUNK), torch.split(filled, CHUNK), strict=True):
                keys, _ = self.read(layer, part)
                stored.store(part, layer, keys, count)
        self.representatives.learn(ids)

    def read_dense(
        self, layer: int, block_table: torch.Tensor, context_len: int, phases: Phases | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v float32 [context_len, kv_heads, head_dim] of one request; evicted pages read as zeros (see `absent`).

        `block_table` int [blocks]; the seconds spent dequantising are added to `phases.decompress`.
        """
        shape = self.geometry
        ids = block_table[: shape.blocks_for(context_len)].long()
        k, v = (pages.transpose(1, 2) for pages in self.read(layer, ids, phases))
        flat = (-1, shape.kv_heads, shape.head_dim)
        return k.reshape(flat)[:context_len], v.reshape(flat)[:context_len]

    def weighed(self) -> tuple[list[float], int]:
        """Resident bytes by layer, and how many of all layers' are overhead.

        Resident are live pages of every form, representatives, and an even share of the live rows of all tables;
        overhead is what of it is not keys and values: representatives, scales, tables.
        """
        pages, beside = self.page_counts @ self._page_sizes, self._beside_bytes()
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

    def _beside_bytes(self) -> int:
        """Representatives and live table rows, all layers."""
        pages = self.geometry.pages_per_block
        tables = self.blocks.live * (pages * (OFFSET_BYTES + FORM_BYTES) + BLOCK_BYTES)
        return tables + self.representatives.count * pages * self.geometry.representative_bytes

    def entries_by_layer(self) -> Entries:
        """Hot and cold entries per layer, from the tables; O(live blocks)."""
        ids = self.blocks.live_ids()
        filled = self.blocks.filled[ids].double()[None, :, None]
        held = self.page_form[:, ids] % HOST
        most = torch.zeros(HOST, dtype=torch.float64)
        for code, form in self.forms.items():
            most[code] = form.entries(self.geometry)
        entries = torch.minimum(most[held.long()], filled)
        hot, gone = held == HOT, (held == NONE) | (held == EVICTED)
        tiers = ((entries * mask).sum((1, 2)) / self.geometry.kv_heads for mask in (hot, ~hot & ~gone))
        return Entries(*(tier.tolist() for tier in tiers))

    def check(self) -> None:
        """Raise AssertionError where tables, counts and arena disagree."""
        self.blocks.check()
        places = [(0, self.arena)] if self.host is None else [(0, self.arena), (HOST, self.host)]
        for where, arena in places:
            arena.check()
            for code in self.forms:
                held = self.page_form == code + where
                assert int(held.sum()) == arena.live_pages[code], f"form {code + where}: tables and arena disagree"
                assert (self.page_counts[:, code + where] == held.sum((1, 2)).numpy()).all(), "counts are off"
            here = (self.page_offset >= 0) & (self.page_form // HOST == where // HOST)
            spans = torch.stack((self.page_offset[here], page_ends(self)[here]), 1)
            spans = spans[spans[:, 0].argsort()]
            assert bool((spans[1:, 0] >= spans[:-1, 1]).all()), "two pages overlap"
        live = (self.page_form != NONE) & (self.page_form != EVICTED)
        assert bool((live == (self.page_offset >= 0)).all()), "an offset without a form"
        assert not self.page_form[:, self.blocks.refs == 0].any(), "a free block has pages"
        assert not self.representatives.known[self.blocks.refs == 0].any(), "a free block has representatives"


def page_ends(cache: KVCache) -> torch.Tensor:
    """Where each page ends in the arena, bytes int64 [layers, max_blocks, kv_heads]."""
    sizes = torch.zeros(256, dtype=torch.int64)
    for code, size in cache.arena.page_bytes.items():
        sizes[code] = sizes[code + HOST] = size
    return cache.page_offset + sizes[cache.page_form.long()]
