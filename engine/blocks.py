"""Block ids: which are free, and how many requests or prefixes hold each of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.arena import OutOfBlocks


class Blocks:
    """Reference counts int32 [max_blocks]; `filled` int32 [max_blocks] counts the slots written in each."""

    def __init__(self, max_blocks: int) -> None:
        self.refs = torch.zeros(max_blocks, dtype=torch.int32)
        self.filled = torch.zeros(max_blocks, dtype=torch.int32)
        self._refs, self._filled = self.refs.numpy(), self.filled.numpy()
        self._free = list(range(max_blocks - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def live(self) -> int:
        return len(self._refs) - len(self._free)

    @property
    def tokens(self) -> int:
        """Slots written, over all blocks."""
        return int(self._filled.sum())

    def live_ids(self) -> torch.Tensor:
        """int64 [live], ascending."""
        return torch.from_numpy(np.flatnonzero(self._refs))

    def take(self, n: int) -> list[int]:
        """`n` ids with one reference each. Raises OutOfBlocks."""
        if n > len(self._free):
            raise OutOfBlocks(f"{n} blocks wanted, {len(self._free)} of {len(self._refs)} block ids are free")
        ids = [self._free.pop() for _ in range(n)]
        self._refs[ids] = 1
        self._filled[ids] = 0
        return ids

    def retain(self, ids: Sequence[int]) -> None:
        self._held(ids)
        np.add.at(self._refs, np.asarray(ids, dtype=np.int64), 1)

    def release(self, ids: Sequence[int]) -> list[int]:
        """Drop one reference each; the ids that no one holds any more. Raises ValueError and changes nothing."""
        drops = np.bincount(np.asarray(ids, dtype=np.int64), minlength=len(self._refs))
        if len(drops) > len(self._refs) or (drops > self._refs).any():
            raise ValueError("blocks: released more often than held")
        self._refs -= drops.astype(np.int32)
        gone: list[int] = np.flatnonzero((drops > 0) & (self._refs == 0)).tolist()
        self._free.extend(reversed(gone))
        self._filled[gone] = 0
        return gone

    def fill(self, ids: np.ndarray, slots: np.ndarray) -> None:
        np.maximum.at(self._filled, ids, (slots + 1).astype(np.int32))

    def _held(self, ids: Sequence[int]) -> None:
        for block in ids:
            if not 0 <= block < len(self._refs) or self._refs[block] == 0:
                raise ValueError(f"blocks: block {block} is not held")

    def check(self) -> None:
        """Raise AssertionError where free list and reference counts disagree."""
        assert len(set(self._free)) == len(self._free), "a block id is free twice"
        assert (self._refs >= 0).all(), "a reference count is negative"
        assert not self._refs[self._free].any(), "a free block id is held"
        assert int((self._refs == 0).sum()) == len(self._free), "a block id is lost"
