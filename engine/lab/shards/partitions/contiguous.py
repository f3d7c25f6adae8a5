"""A stretch of the context to each rank. What is read together lies together, and often all on one rank."""

from __future__ import annotations

import numpy as np

from engine.lab.shards.partitions._base import Owners, Split, Stretch, enough


class Contiguous:
    NAME = "contiguous"
    SPLIT: Split = "blocks"

    def owners(self, one: Stretch) -> Owners:
        """Cut for the blocks there are: a context that grows must be cut for its longest."""
        enough(self.NAME, "blocks", one.blocks, one.ranks)
        rank = np.arange(one.blocks) * one.ranks // one.blocks
        return np.repeat(rank[None], one.kv_heads, 0).astype(np.int16)


def make() -> Contiguous:
    return Contiguous()
