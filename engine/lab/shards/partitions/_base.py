"""What every partition says: the rank that owns each block of one request in one layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Owners = npt.NDArray[np.int16]
Split = Literal["layers", "heads", "blocks"]


@dataclass(frozen=True)
class Stretch:
    """One request in one layer: what a partition may look at. `pinned` bool [blocks]: read at every step for good.

    Owners must not change while a context grows behind `blocks`, but for a partition that says otherwise.
    """

    layer: int
    layers: int
    request: int
    kv_heads: int
    ranks: int
    pinned: npt.NDArray[np.bool_]

    @property
    def blocks(self) -> int:
        return len(self.pinned)


class Partition(Protocol):
    """`SPLIT` is what is cut: then blocks, heads or layers need each other's results in their own way."""

    NAME: str
    SPLIT: Split

    def owners(self, one: Stretch) -> Owners:
        """Rank by [kv_heads, blocks]. Raises ValueError where there is too little to give every rank a part."""
        ...


def enough(name: str, what: str, there: int, ranks: int) -> None:
    if there < ranks:
        raise ValueError(f"{name}: {there} {what} cannot be spread over {ranks} ranks, expected at least one each")
