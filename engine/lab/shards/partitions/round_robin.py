"""Blocks dealt in turn, pinned ones (sinks, prompts that stay) in a turn of their own.

The first rank differs by request, layer and head: else the first sink of everything would lie on rank 0. An owner never
changes while the context grows: it depends only on how many pinned and other blocks came before.
"""

from __future__ import annotations

import numpy as np

from engine.lab.shards.partitions._base import Owners, Split, Stretch, enough


class RoundRobin:
    NAME = "round_robin"
    SPLIT: Split = "blocks"

    def owners(self, one: Stretch) -> Owners:
        enough(self.NAME, "blocks", one.blocks, one.ranks)
        turn = np.where(one.pinned, np.cumsum(one.pinned) - 1, 0 - np.cumsum(~one.pinned))
        # Pinned blocks are dealt forwards, the others backwards: what is left over of both meets on other ranks.
        first = one.request + one.layer + np.arange(one.kv_heads)
        return ((turn[None] + first[:, None]) % one.ranks).astype(np.int16)


def make() -> RoundRobin:
    return RoundRobin()
