"""Whole kv heads to each rank, as tensor parallelism does: each chooses and attends alone, results are put together."""

from __future__ import annotations

import numpy as np

from engine.lab.shards.partitions._base import Owners, Split, Stretch, enough


class ByHead:
    NAME = "by_head"
    SPLIT: Split = "heads"

    def owners(self, one: Stretch) -> Owners:
        """More ranks than heads are refused: they would hold copies."""
        enough(self.NAME, "kv heads", one.kv_heads, one.ranks)
        rank = np.arange(one.kv_heads) * one.ranks // one.kv_heads
        return np.repeat(rank[:, None], one.blocks, 1).astype(np.int16)


def make() -> ByHead:
    return ByHead()
