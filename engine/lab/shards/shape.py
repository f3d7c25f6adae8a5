"""The KV of a batch: how many layers, requests, heads and blocks, and how many of them a step reads."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Shape:
    """Requests are as long as each other; `blocks` are those of a layer of the even budget.

    `chosen` above 0 is the number of blocks a step reads, else it is `share` of them; 1 reads all without choosing.
    `budgets` "even": every layer keeps all blocks. "pyramid": from 1.75 times as many in the first layer down to a
    quarter in the last, as policies do that give later layers less. `pins` are read at every step beside sinks and
    window: a prompt that stays. Raises ValueError naming what cannot be.
    """

    layers: int
    requests: int
    kv_heads: int
    group: int
    head_dim: int
    blocks: int
    block_tokens: int = 64
    share: float = 0.25
    chosen: int = 0
    budgets: str = "even"
    sink_blocks: int = 1
    window_blocks: int = 1
    pins: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("layers", "requests", "kv_heads", "group", "head_dim", "blocks", "block_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"shape: {name} is {getattr(self, name)}, expected at least 1")
        if not 0 < self.share <= 1:
            raise ValueError(f"shape: share is {self.share}, expected more than 0 and at most 1")
        if self.budgets not in ("even", "pyramid"):
            raise ValueError(f"shape: budgets are {self.budgets!r}, expected 'even' or 'pyramid'")

    @property
    def q_heads(self) -> int:
        return self.kv_heads * self.group

    def blocks_in(self, layer: int) -> int:
        """Blocks that a layer keeps of each request."""
        if self.budgets == "even" or self.layers == 1:
            return self.blocks
        factor = 1.75 - 1.5 * layer / (self.layers - 1)
        return max(self.sink_blocks + self.window_blocks, round(self.blocks * factor))

    def wanted_in(self, layer: int) -> int:
        """Blocks of each request and head that a step reads in a layer; the pinned ones are among them."""
        there = self.blocks_in(layer)
        asked = round(self.chosen * there / self.blocks) if self.chosen else ceil(there * self.share - 1e-9)
        return min(there, max(asked, int(self.pinned(layer).sum())))

    def chooses(self, layer: int) -> bool:
        return self.wanted_in(layer) < self.blocks_in(layer)

    def lasting(self, layer: int) -> npt.NDArray[np.bool_]:
        """bool [blocks]: what stays pinned for good, sinks and `pins`."""
        place = np.arange(self.blocks_in(layer))
        found: npt.NDArray[np.bool_] = (place < self.sink_blocks) | np.isin(place, self.pins)
        return found

    def pinned(self, layer: int) -> npt.NDArray[np.bool_]:
        """bool [blocks]: read whatever they score; the window, which moves on, is among them."""
        there = self.blocks_in(layer)
        found: npt.NDArray[np.bool_] = self.lasting(layer) | (np.arange(there) >= there - self.window_blocks)
        return found
